"""What each part of the stack is on one machine: commands, probes, limits."""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from batch.settings import BatchSettings
from batch.worker.commands import beat_command, worker_commands
from coserve.local import postgres, valkey
from coserve.local.command import Command
from coserve.local.part import PartPlan, log_tail
from coserve.local.probes import answers_200, in_thread, lives_for
from coserve.local.restart import RestartPolicy
from coserve.settings import LocalSettings
from engine_adapter.engine_process import Device, EngineSettings, engine_command
from engine_adapter.refusal import EXIT_REFUSED, reason_in

# Parts of one rank stop together, the highest rank first; the graces add up to less than 15 s.
SERVER_RANK, ENGINE_RANK, SERVICE_RANK = 0, 1, 2
_STREAMS_GRACE_S = 3.0
_GATEWAY_GRACE_S = _STREAMS_GRACE_S + 4.0  # engines are told, then usage is written
_WORKER_GRACE_S = 6.0  # the dispatcher gives its rows back within 5 s
_BEAT_GRACE_S = 3.0
_ENGINE_GRACE_S = 3.0
_SERVER_GRACE_S = 4.0
# SGLang's schedulers tell their load through such a file, and nothing of it removes it.
ENGINE_LEFTOVERS = "/dev/shm/sglang_loads_"
_EXIT_USAGE = 2
_WRONG_ARGUMENT = re.compile(r"[\w. -]+: error: (.+?)\.?")
_ENGINE_READY_LIMIT_S = 600.0  # a large model on a GPU loads for minutes


@dataclass(frozen=True)
class Addresses:
    """Where the parts find each other, as their environment says."""

    database_url: str
    broker_url: str
    engine_urls: str

    def environment(
        self, settings: LocalSettings, secret: str, environ: Mapping[str, str]
    ) -> dict[str, str]:
        """The whole environment of gateway, workers and beat."""
        return {
            "COSERVE_SHUTDOWN_GRACE_S": f"{_STREAMS_GRACE_S:.0f}",
            **environ,
            "DATABASE_URL": self.database_url,
            "BROKER_URL": self.broker_url,
            "ENGINE_URLS": self.engine_urls,
            "COSERVE_HOME": str(settings.home_path),
            "COSERVE_HOST": settings.host,
            "COSERVE_PORT": str(settings.port),
            "COSERVE_SECRET": secret,
            "PYTHONUNBUFFERED": "1",
        }


@dataclass(frozen=True)
class EngineInstall:
    """An engine that can be started here."""

    python: Path
    model_dir: Path
    cuda: bool


def log_path(home: Path, name: str) -> Path:
    """Where a part's output goes."""
    return home / "log" / f"{name}.log"


def postgres_plan(files: postgres.PostgresFiles, home: Path) -> PartPlan:
    command = postgres.command(files, log_path(home, "postgres"), stop_grace_s=_SERVER_GRACE_S)
    return PartPlan("Postgres", command, in_thread(lambda: postgres.is_ready(files)))


def valkey_plan(files: valkey.ValkeyFiles, home: Path) -> PartPlan:
    command = valkey.command(files, log_path(home, "valkey"), stop_grace_s=_SERVER_GRACE_S)
    return PartPlan("Valkey", command, in_thread(lambda: valkey.is_ready(files)))


def engine_plan(settings: LocalSettings, engine: EngineInstall, port: int) -> PartPlan:
    """The engine on this machine."""
    argv, env = engine_command(
        EngineSettings(
            python=engine.python,
            model_dir=engine.model_dir,
            port=port,
            device=Device.CUDA if engine.cuda else Device.CPU,
            extra_args=tuple(shlex.split(settings.engine_args)),
        ),
        {**os.environ, "COSERVE_HOME": str(settings.home_path)},
    )
    home = settings.home_path
    log = log_path(home, "engine")
    return PartPlan(
        "The engine",
        Command(
            name="engine",
            argv=tuple(argv),
            log=log,
            env=env,
            cwd=home / "run",
            stop_grace_s=_ENGINE_GRACE_S,
            leftovers=ENGINE_LEFTOVERS,
        ),
        answers_200(f"http://127.0.0.1:{port}/health"),
        ready_limit_s=_ENGINE_READY_LIMIT_S,
        # A model that does not load will not load the second time either.
        restart=RestartPolicy(num_tries_at_start=1),
        refusal=lambda code: why_engine_ended(code, log),
    )


def why_engine_ended(code: int, log: Path) -> str:
    """Why an engine cannot start, in one sentence; empty if it does not say."""
    if code == EXIT_REFUSED:
        return reason_in(log)
    # SGLang answers a wrong argument with its whole usage; the reason is the last line.
    wrong = _WRONG_ARGUMENT.fullmatch(log_tail(log, 1).strip()) if code == _EXIT_USAGE else None
    return f"COSERVE_ENGINE_ARGS: {wrong[1]}." if wrong else ""


def worker_plans(home: Path, env: Mapping[str, str], settings: BatchSettings) -> list[PartPlan]:
    """Celery's workers and its clock."""
    plans = []
    for each in (*worker_commands(settings), beat_command(settings)):
        command = Command(
            name=each.name,
            argv=each.argv,
            log=log_path(home, each.name),
            env={**env, **each.env},
            cwd=home / "run",  # beat keeps its schedule in the working directory
            stop_grace_s=_BEAT_GRACE_S if each.name == "beat" else _WORKER_GRACE_S,
        )
        plans.append(PartPlan(each.name.replace("-", " ").capitalize(), command, lives_for(0.2)))
    return plans


def gateway_plan(settings: LocalSettings, env: Mapping[str, str]) -> PartPlan:
    """The gateway; ready when it has asked its engines, however the parts behind it are."""
    home = settings.home_path
    return PartPlan(
        "The gateway",
        Command(
            name="gateway",
            argv=(sys.executable, "-m", "gateway"),
            log=log_path(home, "gateway"),
            env=env,
            cwd=home / "run",
            stop_grace_s=_GATEWAY_GRACE_S,
        ),
        answers_200(f"{settings.root_url}/readyz"),
    )
