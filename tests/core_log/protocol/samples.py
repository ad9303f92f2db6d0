"""Every message we declare, and instances of each at any version: random ones and full ones."""

import importlib
import pkgutil
from typing import Any
from uuid import UUID

from hypothesis import strategies as st

from headwater.core_log.protocol import messages
from headwater.core_log.protocol.fields import Field, Number, fields_of
from headwater.core_log.protocol.message import Request, response_type

RECORD_MODULES = {
    "consumer_protocol",
    "control_records",
    "group_records",
    "principal_data",
    "transaction_records",
}


def _classes(module_name: str) -> list[Any]:
    module = importlib.import_module(f"{messages.__name__}.{module_name}")
    mine = [each for each in vars(module).values() if isinstance(each, type)]
    return [each for each in mine if each.__module__ == module.__name__]


def _declared_in(module_names: set[str]) -> list[Any]:
    classes = [each for name in sorted(module_names) for each in _classes(name)]
    return [each for each in classes if hasattr(each, "versions")]


MODULES = {module.name for module in pkgutil.iter_modules(messages.__path__)}
MESSAGES = _declared_in(MODULES - RECORD_MODULES)
RECORDS = _declared_in(RECORD_MODULES)
REQUESTS = [each for each in MESSAGES if issubclass(each, Request)]
API_KEYS = {each.api_key: each for each in REQUESTS} | {}
KEY_OF_RESPONSE = {response_type(each): each.api_key for each in REQUESTS}


def versions_of(message: Any) -> range:
    return range(message.versions[0], message.versions[1] + 1)


def is_flexible(message: Any, version: int) -> bool:
    return bool(version >= message.flexible_from)


EVERY_VERSION = [
    (message, version) for message in MESSAGES + RECORDS for version in versions_of(message)
]

BOUNDS = {
    "b": (-(2**7), 2**7 - 1),
    "h": (-(2**15), 2**15 - 1),
    "H": (0, 2**16 - 1),
    "i": (-(2**31), 2**31 - 1),
    "I": (0, 2**32 - 1),
    "q": (-(2**63), 2**63 - 1),
}


def instances(struct: type, version: int) -> st.SearchStrategy[Any]:
    """Anything this version can say; what it cannot say keeps its default."""
    fields = [field for field in fields_of(struct) if field.is_in(version)]
    return st.builds(struct, **{field.name: _values(field, version) for field in fields})


def _values(field: Field, version: int) -> st.SearchStrategy[Any]:
    values = _single_values(field.kind, version)
    if field.is_array:
        values = st.lists(values, max_size=2).map(tuple)
    return st.none() | values if field.is_nullable_in(version) else values


def _single_values(kind: Number | type, version: int) -> st.SearchStrategy[Any]:
    if isinstance(kind, Number):
        if kind.code == "?":
            return st.booleans()
        if kind.code == "d":
            return st.floats(allow_nan=False)
        return st.integers(*BOUNDS[kind.code])
    if kind is str:
        return st.text(max_size=5)
    if kind is UUID:
        return st.uuids()
    if kind is bytes:
        return st.binary(max_size=5)
    if kind is memoryview:
        return st.binary(max_size=5).map(memoryview)
    return instances(kind, version)


def full(struct: type, version: int) -> Any:
    """An instance with no field left at its default, tagged ones included, and no nulls."""
    fields = [field for field in fields_of(struct) if field.is_in(version)]
    return struct(**{field.name: _full_value(field, version) for field in fields})


def _full_value(field: Field, version: int) -> Any:
    value = _full_single_value(field.kind, version)
    return (value, value) if field.is_array else value


def _full_single_value(kind: Number | type, version: int) -> Any:
    if isinstance(kind, Number):
        return {"?": True, "d": 0.5}.get(kind.code, 7)
    if kind is UUID:
        return UUID(int=2**100 + 9)
    if kind in (str, bytes, memoryview):
        return {str: "näme", bytes: b"bytes", memoryview: memoryview(b"records")}[kind]
    return full(kind, version)
