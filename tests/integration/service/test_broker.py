"""The broker behind Sentinels, and over TLS: real servers, the product's own clients."""

from __future__ import annotations

import asyncio
import ssl
import subprocess
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from redis.exceptions import RedisError
from sqlalchemy import text

from batch.files import make_file_store
from batch.settings import BatchSettings
from batch.worker.app import make_app
from gateway.limits.buckets import Charge
from gateway.limits.valkey import ValkeyBuckets
from service.broker import Broker
from store.session import Database
from tests.fakes.engine import FakeEngine, FakeSettings
from tests.fakes.server import serving
from tests.fixtures.batches import PATIENCE_S, add_validating, line, until_status
from tests.fixtures.sentinels import ValkeyGroup, valkey_group
from tests.fixtures.workers import installation, workers

pytestmark = pytest.mark.timeout(400)

FOUND_AGAIN_S = 150.0


@pytest.fixture
def group(servers_home: Path, tmp_path: Path) -> Iterator[ValkeyGroup]:
    with valkey_group(tmp_path / "valkey") as made:
        yield made


async def test_limits_follow_the_master(group: ValkeyGroup) -> None:
    buckets = ValkeyBuckets(Broker(group.url), timeout_s=PATIENCE_S)
    charge = [Charge("k", 1)]
    assert (await buckets.take(charge)).allowed
    await group.lose_master()
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                assert (await buckets.take(charge)).allowed
                break
            except (RedisError, OSError):
                await asyncio.sleep(0.1)
    assert await Broker(group.url).fault(PATIENCE_S) == ""
    await buckets.close()


async def until_someone_waits(database: Database) -> None:
    """Until a transaction waits for a lock of another one."""
    waiting = text("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'")
    async with asyncio.timeout(PATIENCE_S):
        while True:
            async with database.unit_of_work() as session:
                if await session.scalar(waiting):
                    return
            await asyncio.sleep(0.05)


@pytest.mark.thorough
async def test_batches_go_through_a_broker_behind_sentinels(
    group: ValkeyGroup,
    database: Database,
    database_url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with serving(FakeEngine(FakeSettings())) as engine_url:
        for name, value in {
            "DATABASE_URL": database_url,
            "BROKER_URL": group.url,
            "ENGINE_URLS": engine_url,
            "COSERVE_HOME": str(tmp_path),
        }.items():
            monkeypatch.setenv(name, value)
        settings = BatchSettings()
        store = make_file_store(settings)
        lines = [line(f"r{n}") for n in range(20)]
        with workers(installation(settings), tmp_path / "log") as started:
            batch = await add_validating(database, store, lines)
            await until_status(database, batch, "completed")
            # A message of the stages is in hand while the broker is lost.
            async with database.unit_of_work() as holder:
                await holder.execute(text("LOCK TABLE batch_rows IN SHARE ROW EXCLUSIVE MODE"))
                held = await add_validating(database, store, lines)
                await until_someone_waits(database)
                await group.lose_master()
            async with asyncio.timeout(FOUND_AGAIN_S):
                await until_status(database, held, "completed")
                after = await add_validating(database, store, lines)
                await until_status(database, after, "completed")
            ended = {name: one.poll() for name, one in started.processes.items()}
            assert set(ended.values()) == {None}, ended


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """Of 127.0.0.1, signed by itself; its key stands before it."""
    key, made, both = tmp_path / "key.pem", tmp_path / "made.pem", tmp_path / "both.pem"
    subprocess.run(
        [
            "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
            "-nodes", "-days", "2", "-subj", "/CN=valkey", "-addext", "subjectAltName=IP:127.0.0.1",
            "-keyout", key, "-out", made,
        ],
        check=True,
        capture_output=True,
    )  # fmt: skip
    both.write_text(key.read_text() + made.read_text())
    return both


def _word(number: int) -> bytes:
    """As a server writes it."""
    return b"$%d\r\n%d\r\n" % (len(str(number)), number)


@asynccontextmanager
async def encrypted(
    port: int, certificate: Path, ports: Mapping[int, int] | None = None
) -> AsyncIterator[int]:
    """The port of the same server over TLS: its build here has none, so a relay ends the TLS.

    Args:
        ports: What to say in place of which port: a Sentinel knows the servers without TLS.
    """
    open_here: list[asyncio.StreamWriter] = []

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65536):
                for one, other in (ports or {}).items():
                    data = data.replace(_word(one), _word(other))
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
        finally:
            writer.close()

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, to_there = await asyncio.open_connection("127.0.0.1", port)
        open_here.extend([writer, to_there])
        await asyncio.gather(copy(reader, to_there), copy(there, writer))

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    server = await asyncio.start_server(
        relay, "127.0.0.1", 0, ssl=context, ssl_shutdown_timeout=0.5
    )
    async with server:
        try:
            yield server.sockets[0].getsockname()[1]
        finally:  # No socket outlives the test.
            for writer in open_here:
                writer.close()
            await asyncio.gather(*(w.wait_closed() for w in open_here), return_exceptions=True)


async def test_a_certificate_of_ones_own_authority(broker_url: str, certificate: Path) -> None:
    to = urlsplit(broker_url)
    assert to.port is not None
    async with encrypted(to.port, certificate) as port:
        url = f"rediss://:{to.password}@127.0.0.1:{port}/0"
        assert await Broker(url, str(certificate)).fault(PATIENCE_S) == ""
        assert await Broker(url).fault(PATIENCE_S) == "ConnectionError", "nobody vouches for it"
        elsewhere = url.replace("127.0.0.1", "localhost")
        assert await Broker(elsewhere, str(certificate)).fault(PATIENCE_S) == "ConnectionError"

        buckets = ValkeyBuckets(Broker(url, str(certificate)), timeout_s=PATIENCE_S)
        assert (await buckets.take([Charge("k", 1)])).allowed
        await buckets.close()

        settings = BatchSettings.model_validate({"BROKER_URL": url, "broker_ca": str(certificate)})

        def there_and_back() -> object:
            app = make_app(settings)
            with app.connection_for_write() as connection:
                connection.ensure_connection(max_retries=1)
                with connection.SimpleQueue("test") as queue:
                    queue.put({"said": 1})
                    return queue.get(timeout=PATIENCE_S).payload

        assert await asyncio.to_thread(there_and_back) == {"said": 1}


async def test_sentinels_and_their_servers_over_tls(group: ValkeyGroup, certificate: Path) -> None:
    async with AsyncExitStack() as relays:
        over_tls = {
            port: await relays.enter_async_context(encrypted(port, certificate))
            for port in group.servers
        }
        url = "rediss" + group.url.removeprefix("redis")
        for port in group.sentinels:
            relay = await relays.enter_async_context(encrypted(port, certificate, over_tls))
            url = url.replace(f"127.0.0.1:{port}", f"127.0.0.1:{relay}")
        assert await Broker(url, str(certificate)).fault(PATIENCE_S) == ""
        assert await Broker(url).fault(3.0) != "", "nobody vouches for it"

        buckets = ValkeyBuckets(Broker(url, str(certificate)), timeout_s=PATIENCE_S)
        assert (await buckets.take([Charge("k", 1)])).allowed
        await buckets.close()

        settings = BatchSettings(broker_url=url, broker_ca=str(certificate))
        app = make_app(settings)

        def connect() -> None:
            with app.connection_for_write() as connection:
                connection.ensure_connection(max_retries=1, timeout=PATIENCE_S)
                connection.default_channel.client.ping()

        await asyncio.to_thread(connect)
