"""A server with a device of one kind of pass: a line with N gets N tokens, each after its pass.

python -m tests.unit.lab.emulated.toy_engine FOLDER_OF_THE_CLOCK SECONDS_OF_A_PASS
"""

from __future__ import annotations

import queue
import socket
import sys
import threading
from pathlib import Path

from lab.emulated.clock import VirtualClock


def receive(server: socket.socket, requests: queue.SimpleQueue[tuple[socket.socket, int]]) -> None:
    while True:
        connection, _ = server.accept()
        requests.put((connection, int(connection.makefile().readline())))


def serve(clock: VirtualClock, pass_s: float) -> None:
    clock.join()
    server = socket.create_server(("127.0.0.1", 0))
    print(server.getsockname()[1], flush=True)
    requests: queue.SimpleQueue[tuple[socket.socket, int]] = queue.SimpleQueue()
    threading.Thread(target=receive, args=(server, requests), daemon=True).start()
    running: list[tuple[socket.socket, int]] = []
    while True:
        if not running:
            running.append(requests.get())
        while not requests.empty():
            running.append(requests.get())
        clock.launched()
        for _layer in range(4):
            clock.wait(pass_s / 4)
        for connection, _ in running:
            connection.sendall(b"token\n")
        left = [(connection, tokens - 1) for connection, tokens in running]
        for connection, tokens in left:
            if not tokens:
                connection.close()
        running = [(connection, tokens) for connection, tokens in left if tokens]


if __name__ == "__main__":
    serve(VirtualClock(Path(sys.argv[1])), float(sys.argv[2]))
