from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

import pytest
from pydantic import ValidationError
from redis.exceptions import RedisError

from batch.settings import BatchSettings
from batch.worker.app import make_app
from coserve.settings import sentence
from service.broker import Broker, why_refused

GROUP = "redis+sentinel://me:p%40ss@a:1001,b/coserve/3?sentinel_password=s3"


def test_one_server_is_named_as_it_is() -> None:
    said = Broker("redis://:secret@one:6379/2").celery()
    assert said == {
        "broker_url": "redis://:secret@one:6379/2",
        "broker_use_ssl": None,
        "options": {},
    }


def test_a_certificate_is_always_checked() -> None:
    assert Broker("rediss://one").celery()["broker_use_ssl"] == {"ssl_cert_reqs": ssl.CERT_REQUIRED}
    said = Broker("rediss://one", "/run/ca.pem").celery()["broker_use_ssl"]
    assert said["ssl_ca_certs"] == "/run/ca.pem"


def test_sentinels_are_asked_for_the_master_of_their_group() -> None:
    said = Broker(GROUP).celery()
    assert said["broker_url"] == "sentinel://me:p%40ss@a:1001/3;sentinel://me:p%40ss@b:26379/3"
    assert said["options"] == {"master_name": "coserve", "sentinel_kwargs": {"password": "s3"}}


def test_with_tls_sentinels_are_asked_over_it_too() -> None:
    options = Broker("rediss+sentinel://a/coserve", "/run/ca.pem").celery()["options"]
    assert options["sentinel_kwargs"] == {
        "ssl": True,
        "ssl_cert_reqs": ssl.CERT_REQUIRED,
        "ssl_ca_certs": "/run/ca.pem",
    }


def test_celery_keeps_its_own_options_beside_them() -> None:
    conf = make_app(BatchSettings.model_validate({"BROKER_URL": GROUP})).conf
    assert conf.broker_transport_options["master_name"] == "coserve"
    assert conf.broker_transport_options["global_keyprefix"] == "coserve:"


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("amqp://:secret@one", "must begin with one of"),
        ("redis+sentinel://:secret@a:1", "must be like"),
        ("redis+sentinel:///group", "must be like"),
        ("redis+sentinel://:secret@a/group/one", "must end with"),
        ("redis+sentinel://:secret@a:port/group", "each Sentinel must be"),
        ("redis+sentinel://:secret@a,/group", "each Sentinel must be"),
        ("redis+sentinel://:secret@a/group?db=1", "unknown parameter: db"),
    ],
)
def test_what_is_no_address_is_refused_without_its_password(url: str, why: str) -> None:
    with pytest.raises(ValidationError) as refused:
        BatchSettings.model_validate({"BROKER_URL": url})
    said = sentence(refused.value.errors()[0])
    assert said.startswith("BROKER_URL: ")
    assert why in said
    assert "secret" not in said


def test_a_missing_authority_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValidationError) as refused:
        BatchSettings(broker_ca=str(tmp_path / "none.pem"))
    assert sentence(refused.value.errors()[0]) == "COSERVE_BROKER_CA: there is no such file."


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (b"-ERR max number of clients reached\r\n", "takes no more connections"),
        (b"-OOM command not allowed when used memory > 'maxmemory'.\r\n", "has no memory left"),
        (b"-LOADING Valkey is loading the dataset in memory\r\n", "cannot be reached"),
        (b"", "cannot be reached"),
    ],
)
async def test_a_full_server_is_told_from_one_that_is_away(said: bytes, why: str) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(said)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    client = Broker(f"redis://127.0.0.1:{port}/0").client()
    with pytest.raises(RedisError) as met:
        await client.ping()
    assert why_refused(met.value) == why
    await client.aclose()
    server.close()
