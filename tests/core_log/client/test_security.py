"""The log is read and written over TLS and as somebody; who is not meant to come in does not."""

import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from headwater.core_log.client import KafkaLog, KafkaSettings
from headwater.core_log.embedded import EmbeddedLog
from headwater.core_log.foundation.errors import (
    ConfigError,
    HeadwaterError,
    LogRejected,
    LogUnavailable,
)
from headwater.core_log.foundation.settings import BrokerSettings, SecuritySettings, TopicSettings
from headwater.core_log.model.log import TopicPartition
from headwater.core_log.records.batch_header import Batch
from headwater.core_log.records.record_codec import (
    PlainRecord,
    decode_batch,
    encode_batch,
    iterate_batches,
)
from tests.certificates import Authority
from tests.core_log.client.guarded_broker import PASSWORD, USER, Guard, guarded

PARTITION = TopicPartition("t", 0)
LARGE = b"x" * 3_000_000
"""More than one TLS record, one inbox and one turn of the loop hold."""
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[EmbeddedLog]:
    log = await EmbeddedLog.open(
        BrokerSettings(data=tmp_path / "data", listen="127.0.0.1:0", internal_partitions=1)
    )
    await log.ensure_topic(TopicSettings(name="t", config={"max.message.bytes": "9000000"}))
    yield log
    await log.close()


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def context(authority: Authority, *, wants_clients: bool = False, **issued: Any) -> ssl.SSLContext:
    made = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=authority.file)
    made.load_cert_chain(authority.issue("broker", **issued))
    if wants_clients:
        made.verify_mode = ssl.CERT_REQUIRED
    return made


def place(log: EmbeddedLog) -> tuple[str, int]:
    return log.running.server.address


def client(guard: Guard, **security: object) -> KafkaLog:
    settings = KafkaSettings(
        bootstrap=["{}:{}".format(*guard.address)],
        security=SecuritySettings.model_validate(security),
        retry_for_ms=200,
    )
    return KafkaLog(settings)


def as_somebody(**changes: object) -> dict[str, object]:
    return {"protocol": "SASL_PLAINTEXT", "user": USER, "password": PASSWORD, **changes}


async def round_trip(log: KafkaLog, value: bytes) -> bytes | None:
    """Writes in a transaction, and reads what is committed."""
    try:
        writer = await log.writer("w")
        offset = await writer.append(PARTITION, Batch(encode_batch([PlainRecord(None, value)]), 1))
        (fetched,) = await log.fetch({PARTITION: offset})
        (batch,) = iterate_batches(fetched.data)
        return decode_batch(batch)[1][0].value
    finally:
        await log.close()


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_a_user_comes_in_by_every_mechanism(broker: EmbeddedLog, mechanism: str) -> None:
    async with guarded(place(broker), *MECHANISMS) as guard:
        assert await round_trip(client(guard, **as_somebody(mechanism=mechanism)), b"a") == b"a"

        assert guard.admitted


@pytest.mark.slow
async def test_large_batches_pass_through_tls_both_ways(
    broker: EmbeddedLog, authority: Authority
) -> None:
    async with guarded(place(broker), tls=context(authority)) as guard:
        log = client(guard, protocol="SSL", ca_file=authority.file)

        assert await round_trip(log, LARGE) == LARGE


async def test_a_user_comes_in_through_tls(broker: EmbeddedLog, authority: Authority) -> None:
    async with guarded(place(broker), *MECHANISMS, tls=context(authority)) as guard:
        log = client(guard, **as_somebody(protocol="SASL_SSL", ca_file=authority.file))

        assert await round_trip(log, b"a") == b"a"


@pytest.mark.parametrize("password", ["", "of the key"])
async def test_a_client_shows_its_own_certificate(
    broker: EmbeddedLog, authority: Authority, password: str
) -> None:
    async with guarded(place(broker), tls=context(authority, wants_clients=True)) as guard:
        log = client(
            guard,
            protocol="SSL",
            ca_file=authority.file,
            certificate_file=authority.issue("client", password=password),
            key_password=password,
        )

        assert await round_trip(log, b"a") == b"a"


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_a_wrong_password_is_refused_at_once_and_told_to_nobody(
    broker: EmbeddedLog, mechanism: str
) -> None:
    async with guarded(place(broker), *MECHANISMS) as guard:
        log = client(guard, **as_somebody(mechanism=mechanism, password="guessed-by-somebody"))

        with pytest.raises(LogRejected, match="refuses the user or the password") as refused:
            await round_trip(log, b"a")

        assert "guessed" not in str(refused.value) + repr(log.__dict__)
        assert not guard.admitted


async def refusal(guard: Guard, **security: object) -> HeadwaterError:
    with pytest.raises(HeadwaterError) as refused:
        await round_trip(client(guard, **security), b"a")
    return refused.value


async def test_a_mechanism_that_is_not_offered_is_told_with_those_that_are(
    broker: EmbeddedLog,
) -> None:
    async with guarded(place(broker), "PLAIN") as guard:
        refused = await refusal(guard, **as_somebody())

    assert isinstance(refused, LogRejected)
    assert refused.facts == {"mechanism": "SCRAM-SHA-512", "offered": "PLAIN"}


async def test_a_cluster_that_wants_no_user_says_so(broker: EmbeddedLog) -> None:
    async with guarded(place(broker)) as guard:
        refused = await refusal(guard, **as_somebody())

    assert isinstance(refused, LogRejected)
    assert "does not authenticate users" in str(refused)


async def test_an_anonymous_client_is_not_let_in_where_a_user_is_wanted(
    broker: EmbeddedLog,
) -> None:
    async with guarded(place(broker), "PLAIN") as guard:
        refused = await refusal(guard)

    assert isinstance(refused, LogUnavailable)
    assert "set `security.protocol` and `security.user`" in refused.hint


async def test_an_unknown_authority_is_not_trusted(
    broker: EmbeddedLog, authority: Authority, tmp_path: Path
) -> None:
    stranger = Authority(tmp_path, "stranger")

    async with guarded(place(broker), tls=context(authority)) as guard:
        refused = await refusal(guard, protocol="SSL", ca_file=stranger.file)

    assert isinstance(refused, LogRejected)
    assert "not trusted" in str(refused)


async def test_a_certificate_of_another_host_is_not_trusted_unless_names_are_not_looked_at(
    broker: EmbeddedLog, authority: Authority
) -> None:
    tls = context(authority, address="192.0.2.1")
    async with guarded(place(broker), tls=tls) as guard:
        refused = await refusal(guard, protocol="SSL", ca_file=authority.file)
        log = client(guard, protocol="SSL", ca_file=authority.file, check_host=False)

        assert isinstance(refused, LogRejected)
        assert await round_trip(log, b"a") == b"a"


@pytest.mark.parametrize("is_encrypted", [True, False])
async def test_the_wrong_kind_of_listener_is_a_cluster_that_does_not_answer(
    broker: EmbeddedLog, authority: Authority, is_encrypted: bool
) -> None:
    tls = None if is_encrypted else context(authority)
    wanted = {"protocol": "SSL", "ca_file": authority.file} if is_encrypted else {}
    async with guarded(place(broker), tls=tls) as guard:
        assert isinstance(await refusal(guard, **wanted), LogUnavailable)


def test_files_that_are_no_certificates_are_told_by_name(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("nothing of the kind")
    for name in ("ca.pem", "missing.pem"):
        security = SecuritySettings.model_validate({"protocol": "SSL", "ca_file": name}).beside(
            tmp_path
        )

        with pytest.raises(ConfigError, match=name):
            KafkaLog(KafkaSettings(bootstrap=["127.0.0.1:1"], security=security))


@pytest.mark.parametrize(
    "keys",
    [
        {"user": "shop"},
        {"protocol": "SASL_SSL"},
        {"ca_file": "ca.pem"},
        {"protocol": "SSL", "key_file": "key.pem"},
        {"protocol": "SASL_SSL", "user": "shop", "mechanism": "GSSAPI"},
    ],
)
def test_keys_that_contradict_each_other_are_refused(keys: dict[str, str]) -> None:
    with pytest.raises(ValueError):
        SecuritySettings.model_validate(keys)
