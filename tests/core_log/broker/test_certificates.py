"""A certificate that is not accepted is refused with the reason, on both sides."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from headwater.core_log.foundation.errors import LogRejected, LogUnavailable
from headwater.core_log.foundation.settings import SecuritySettings
from tests.certificates import LIFE, Authority
from tests.core_log.broker.test_authentication import SASL, Start, tls, topics_seen
from tests.core_log.broker.test_authentication import start as start

EXPIRED, FUTURE = (-2 * LIFE, -LIFE), (LIFE, 2 * LIFE)
Life = tuple[timedelta, timedelta]


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def stranger(tmp_path: Path) -> Authority:
    (tmp_path / "other").mkdir()
    return Authority(tmp_path / "other", "stranger")


@pytest.mark.parametrize(
    ("issued", "problem", "hint"),
    [
        ({"life": EXPIRED}, "has expired", "a new one"),
        ({"life": FUTURE}, "is not valid yet", "clocks"),
        ({"address": "127.0.0.2"}, "is for another host", "name that is in the certificate"),
    ],
)
async def test_a_client_is_told_why_it_does_not_trust_a_broker(
    start: Start, authority: Authority, issued: dict[str, Any], problem: str, hint: str
) -> None:
    file = authority.issue("other", **issued)
    files = {"certificate_file": file, "key_file": file, "ca_file": authority.file}
    broker = await start({"tls": files, **SASL})

    with pytest.raises(LogRejected, match=f"the broker's certificate {problem}") as refused:
        await topics_seen(broker, SecuritySettings(protocol="SSL", ca_file=authority.file))

    assert hint in refused.value.hint


async def test_a_certificate_of_another_authority_is_not_trusted(
    start: Start, authority: Authority, stranger: Authority
) -> None:
    broker = await start({"tls": tls(authority), **SASL})

    with pytest.raises(LogRejected, match="certificate is not trusted") as refused:
        await topics_seen(broker, SecuritySettings(protocol="SSL", ca_file=stranger.file))

    assert "security.ca_file" in refused.value.hint


@pytest.mark.parametrize(
    ("life", "is_ours", "reason"),
    [
        (EXPIRED, True, "certificate has expired"),
        (FUTURE, True, "certificate is not yet valid"),
        ((-LIFE, LIFE), False, "unable to get local issuer certificate"),
    ],
)
async def test_a_broker_says_why_it_does_not_trust_a_client(
    start: Start,
    authority: Authority,
    stranger: Authority,
    life: Life,
    is_ours: bool,
    reason: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    broker = await start({"tls": tls(authority, client_ca_file=authority.file)})
    file = (authority if is_ours else stranger).issue("alice", life=life)

    with pytest.raises((LogRejected, LogUnavailable)):
        shown = SecuritySettings(
            protocol="SSL", ca_file=authority.file, certificate_file=file, key_file=file
        )
        await topics_seen(broker, shown)

    assert f"TLS failed: {reason}" in caplog.text
