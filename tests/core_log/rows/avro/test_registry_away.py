"""A registry that does not answer is named with host, port, reason and cure, and never its user."""

import pytest

from headwater.core_log.foundation.errors import RegistryUnavailable
from headwater.core_log.rows.avro.schema_registry import SchemaRegistry
from scripts.free_port import free_port


def test_a_dead_registry_is_named_with_its_port_and_reason() -> None:
    port = free_port()
    registry = SchemaRegistry(f"http://user:canary@127.0.0.1:{port}")

    with pytest.raises(RegistryUnavailable) as raised:
        registry.number_of("shop", {"type": "string"})

    assert raised.value.facts == {"registry": f"127.0.0.1:{port}", "reason": "connection refused"}
    assert "log.registry" in raised.value.hint and "canary" not in str(raised.value)
