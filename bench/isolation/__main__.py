"""`python -m bench.isolation [ATTACK...]`: one tenant attacks, another chats and sends a batch.

The whole service under its own supervisor before two fake engines: one answers, one embeds.
Meanwhile another tenant reads one open stream, whose tokens say when the engine made them, so a
gap is counted only beyond the engine's own; and sends one batch of one line after the other.
Attackers run at a lower priority: they would be on other machines.

Writes `bench/results/isolation.json` and the table of `docs/security.md`, unless attacks are named.

Quoted in docs/security.md.
"""

from __future__ import annotations

import asyncio
import math
import sys
from collections import Counter
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from batch.files.local import LocalFileStore
from bench.batch_load.one_batch import watch
from bench.installation import (
    LATENCY_MS,
    MAX_RUNNING,
    client_of,
    create,
    database,
    new_projects,
    upload,
)
from bench.isolation.attacker import attacked
from bench.isolation.attacks import ATTACKS, EMBEDDING_MODEL, RESULT_ROWS, SECONDS, Tenant
from bench.isolation.witness import TOKEN_MS, lines_s, stalls_ms
from bench.paths import ROOT
from bench.report import at_most, between, option_parser, report, scratch_folder
from tests.chaos.engine import FakeEngineProcess
from tests.chaos.installation import Installation

CONTEXT_TOKENS = 131_072
ATTACKER, LIMITED, OTHER = "proj_attacker", "proj_limited", "proj_other"
PROJECTS: dict[str, dict[str, int]] = {ATTACKER: {}, LIMITED: {"requests_per_minute": 1}, OTHER: {}}
STALL_MS, LINE_S = 50.0, 10.0
NUM_OBJECTS = 5000
PAGE = ROOT / "docs" / "security.md"
BEGIN, END = "<!-- isolation: make isolation -->", "<!-- end of isolation -->"
EXPECTED = {"200", "400", "401", "404", "408", "413", "415", "429", "503", "connections", "cut"}
"""Answers that say that an attack does what it is meant to."""

TARGETS = {
    f"{name.replace(' ', '_')}_{figure}": at_most(limit)
    for name in ATTACKS
    for figure, limit in (("stall_p999_ms", STALL_MS), ("line_worst_s", LINE_S))
}


def _expire_objects(installation: Installation) -> None:
    """Files of the attacker that have expired and whose bytes cannot be removed."""
    names = [f"stuck{number:08}" for number in range(NUM_OBJECTS)]
    store = LocalFileStore(installation.home / "files")
    for name in names:
        (store._path(name) / "kept").mkdir(parents=True)
    with database(installation) as connection, connection.cursor() as cursor:
        cursor.executemany(
            "INSERT INTO files (id, project_id, purpose, filename, size_bytes, sha256, storage_key,"
            " expires_at) VALUES (%s, 'proj_attacker', 'batch', 'x', 1, repeat('0', 64), %s,"
            " now() - interval '1 hour')",
            [(f"file-{name}", name) for name in names],
        )


def _prepare(installation: Installation, known: dict[str, str]) -> Tenant:
    tenant = Tenant(installation.url, known[ATTACKER], known[LIMITED])
    with client_of(installation, tenant.key) as client, database(installation) as connection:
        tenant.batch_id = create(client, upload(client, RESULT_ROWS))
        watch(client, connection, tenant.batch_id)
        made = client.get(f"/v1/batches/{tenant.batch_id}").raise_for_status().json()
        tenant.output_id = made["output_file_id"]
    return tenant


def measure(folder: Path, names: list[str], seconds: float) -> dict[str, Any]:
    """What the other tenant saw of each attack."""
    fake = FakeEngineProcess(
        folder, latency_ms=LATENCY_MS, max_running=MAX_RUNNING, context_tokens=CONTEXT_TOKENS
    )
    (folder / "embedder").mkdir()
    embedder = FakeEngineProcess(
        folder / "embedder", latency_ms=LATENCY_MS, max_running=MAX_RUNNING,
        context_tokens=CONTEXT_TOKENS, more=("--embeds", "--model", EMBEDDING_MODEL),
    )  # fmt: skip
    installation = Installation(folder / "home", fake, ENGINE_URLS=f"{fake.url},{embedder.url}")
    figures: dict[str, Any] = {"seconds": seconds, "token_ms": TOKEN_MS}
    try:
        embedder.start()
        installation.start()
        known = asyncio.run(new_projects(installation, PROJECTS))
        tenant = _prepare(installation, known)
        with client_of(installation, known[OTHER]) as client:
            file_id = upload(client, 1)
        with ProcessPoolExecutor(1) as reader, ThreadPoolExecutor(1) as sender:
            for name in names:
                if name == "objects":
                    _expire_objects(installation)
                lasts_s = ATTACKS[name].lasts_s or seconds
                key = known[OTHER]
                with attacked(name, tenant) as answers:
                    lines: Future[tuple[list[float], Counter[str]]] = sender.submit(
                        lines_s, installation, key, file_id, lasts_s
                    )
                    stalls = reader.submit(stalls_ms, installation.url, key, lasts_s).result()
                    took, errors = lines.result()
                if strange := set(answers) - EXPECTED:
                    raise RuntimeError(f"{name}: was answered {', '.join(sorted(strange))}")
                told = _told(stalls, took, answers) | {"line_errors": dict(errors)}
                print(f"  {name}: {told}", flush=True)
                figures |= {f"{name.replace(' ', '_')}_{what}": told[what] for what in told}
    finally:
        installation.stop()
        embedder.stop()
    return figures


def _told(stalls: list[float], took: list[float], answers: Counter[str]) -> dict[str, Any]:
    ordered = sorted(stalls)
    return {
        "stall_p999_ms": round(ordered[math.ceil(0.999 * (len(ordered) - 1))], 1),
        "stall_worst_ms": round(ordered[-1], 1),
        "num_gaps": len(ordered),
        "line_worst_s": round(max(took), 2),
        "num_lines": len(took),
        "answers": dict(sorted(answers.items())),
    }


def table(figures: dict[str, Any]) -> str:
    """What `docs/security.md` shows."""
    rows = [
        "| one tenant | P99.9 gap | worst gap | worst one-line batch | its requests |",
        "| --- | --- | --- | --- | --- |",
    ]
    for name, attack in ATTACKS.items():
        of = name.replace(" ", "_")
        answers = figures[f"{of}_answers"]
        refused = sum(number for status, number in answers.items() if status in ("429", "503"))
        served = sum(answers.values()) - refused
        said = f"{served:,}, and {refused:,} refused" if refused else f"{served:,}"
        rows.append(
            f"| {attack.does} | {figures[f'{of}_stall_p999_ms']:.0f} ms | "
            f"{figures[f'{of}_stall_worst_ms']:.0f} ms | {figures[f'{of}_line_worst_s']:.1f} s | "
            f"{said if answers else ''} |"
        )
    return "\n".join(rows) + "\n"


def main() -> int:
    """Run it; with attacks named, only these are printed and nothing is written."""
    parser = option_parser(__doc__)
    parser.add_argument("attacks", nargs="*", metavar="ATTACK", help=", ".join(ATTACKS))
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of each attack (15)")
    options = parser.parse_args()
    chosen = options.attacks
    if unknown := set(chosen) - set(ATTACKS):
        parser.error(f"no such attack: {', '.join(sorted(unknown))}")
    with scratch_folder() as folder:
        figures = measure(folder, chosen or list(ATTACKS), options.seconds)
    if not chosen:
        PAGE.write_text(between(PAGE.read_text(), BEGIN, END, table(figures)))
    return report("isolation", figures, TARGETS, keep=not chosen)


if __name__ == "__main__":
    sys.exit(main())
