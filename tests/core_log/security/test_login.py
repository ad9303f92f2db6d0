"""Before a client is known it may ask for what Kafka allows it, in Kafka's order."""

import pytest

from headwater.core_log.foundation.errors import DecodeError
from headwater.core_log.protocol.frames import FLEXIBLE_FROM
from headwater.core_log.security.login import (
    API_VERSIONS,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    Login,
)
from headwater.core_log.security.sasl_mechanisms import PlainServer
from tests.core_log.security.test_plain import find


def proving() -> Login:
    login = Login()
    login.on_versions()
    login.begin("PLAIN", PlainServer(find=find))
    return login


@pytest.mark.parametrize("api_key", FLEXIBLE_FROM)
def test_nothing_else_is_allowed(api_key: int) -> None:
    begun, agreed = Login(), Login()
    agreed.on_versions()

    for login, allowed in (
        (begun, {API_VERSIONS, SASL_HANDSHAKE}),
        (agreed, {SASL_HANDSHAKE}),
        (proving(), {SASL_AUTHENTICATE}),
    ):
        if api_key in allowed:
            login.expect(api_key)
        else:
            with pytest.raises(DecodeError, match="not allowed before authentication"):
                login.expect(api_key)
