"""Debezium's spellings of a source's keys: taken where we have a key for them."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

from headwater.config.document import ListNode, MappingNode, ScalarNode, YamlNode
from headwater.config.mistakes import TextPosition
from headwater.core_log.foundation.errors import ConfigError


class OurKey(NamedTuple):
    """Where the value goes, and how it is written there."""

    keys: tuple[str, ...]
    convert: Callable[[str], str | list[str] | dict[str, list[str]]] = lambda text: text


def _patterns(text: str) -> list[str]:
    """Debezium lists anchored regular expressions; one without any sign but dots is a name."""
    parts = [part.strip() for part in text.split(",") if part.strip()]
    return [
        part.replace("\\.", ".")
        if part.replace("\\.", "").replace("_", "").replace(".", "").replace("-", "").isalnum()
        else f"/{part}/"
        for part in parts
    ]


def _exclusions(text: str) -> list[str]:
    return [f"!{pattern}" for pattern in _patterns(text)]


def _keys(text: str) -> dict[str, list[str]]:
    """`inventory.orders:id,line;inventory.notes:at`"""
    parts = [part.partition(":") for part in text.split(";") if part.strip()]
    return {
        table.strip(): [column.strip() for column in columns.split(",")]
        for table, _, columns in parts
    }


def _milliseconds(text: str) -> str:
    return f"{text}ms" if text.isdigit() else text


def _snapshot_mode(text: str) -> str:
    return {"no_data": "never", "schema_only": "never"}.get(text, text)


OURS = {
    "table.include.list": OurKey(("tables",), _patterns),
    "table.exclude.list": OurKey(("tables",), _exclusions),
    "message.key.columns": OurKey(("keys",), _keys),
    "snapshot.mode": OurKey(("snapshot", "mode"), _snapshot_mode),
    "snapshot.max.threads": OurKey(("snapshot", "parallel")),
    "incremental.snapshot.chunk.size": OurKey(("snapshot", "chunk_rows")),
    "database.server.id": OurKey(("server_id",)),
    "database.ssl.mode": OurKey(("tls", "mode")),
    "slot.name": OurKey(("slot", "name")),
    "publication.name": OurKey(("publication", "name")),
    "heartbeat.interval.ms": OurKey(("heartbeat",), _milliseconds),
    "poll.interval.ms": OurKey(("batch_wait",), _milliseconds),
    "decimal.handling.mode": OurKey(("decimal",)),
    "time.precision.mode": OurKey(("time",)),
    "binary.handling.mode": OurKey(("binary",)),
    "interval.handling.mode": OurKey(("interval",)),
    "hstore.handling.mode": OurKey(("hstore",)),
    "provide.transaction.metadata": OurKey(("transactions",)),
}
"""A key of Debezium's to ours."""

ELSEWHERE = {
    "connector.class": "write `type:` instead",
    "tasks.max": "take it out, `workers:` says how many processes there are",
    "plugin.name": "take it out, pgoutput is the only plugin",
    "topic.prefix": "the name under `pipeline:` begins every topic, `log.topic` changes that",
    "database.server.name": "the name under `pipeline:` begins every topic",
    "database.hostname": "write `url:` instead",
    "database.port": "write `url:` instead",
    "database.user": "write `url:` instead",
    "database.password": "write `url:` instead, with the password as a reference",
    "database.dbname": "write `url:` instead",
    "tombstones.on.delete": "take it out, a tombstone follows every delete",
    "key.converter": "write `log.value` and `log.schemas` instead",
    "value.converter": "write `log.value` and `log.schemas` instead",
    "column.exclude.list": "write `transform:` with `drop`",
    "column.mask.hash": "write `transform:` with `mask`",
    "transforms": "write `transform:` and `route:` instead",
    "database.include.list": "write `tables:` as `database.*` instead",
    "schema.history.internal.kafka.bootstrap.servers": "take it out, there is no such topic",
    "schema.history.internal.kafka.topic": "take it out, the log keeps the history of schemas",
    "errors.retry.delay.max.ms": "write `errors.retry.backoff` instead",
}
"""Keys of Debezium's whose meaning has its place outside the source."""


@dataclass(frozen=True, slots=True)
class TranslatedConfig:
    node: MappingNode
    mistakes: tuple[tuple[TextPosition, str, str], ...]
    """Where, what, and what to do."""


def translate(source: MappingNode, *, known: frozenset[str]) -> TranslatedConfig:
    """A source's mapping with Debezium's keys replaced by those of ours among `known`."""
    if not any("." in key or key in ELSEWHERE for key in source.values):
        return TranslatedConfig(source, ())
    mistakes: list[tuple[TextPosition, str, str]] = []
    others = {key: value for key, value in source.values.items() if key not in OURS}
    result = replace(source, values=others)
    for key, text_position in source.key_positions.items():
        ours = OURS.get(key)
        if ours is None:
            if key in ELSEWHERE and key not in known:
                mistakes.append(
                    (text_position, f"the key {key!r} has another place here", ELSEWHERE[key])
                )
                result = replace(
                    result, values={k: v for k, v in result.values.items() if k != key}
                )
            continue
        if ours.keys[0] not in known:
            mistakes.append(
                (text_position, f"the option {key!r} is not supported by this type", "take it out")
            )
            continue
        try:
            result = _put(result, ours.keys, _write(source.values[key], ours), text_position)
        except ConfigError as error:
            mistakes.append((text_position, error.problem, error.hint))
    return TranslatedConfig(result, tuple(mistakes))


def _write(node: YamlNode, ours: OurKey) -> YamlNode:
    if not isinstance(node, ScalarNode):
        raise ConfigError(
            "Debezium's keys have one value, with commas in it", hint="use our own key"
        )
    if node.is_unset:
        return node
    value = ours.convert(node.text)
    if isinstance(value, str):
        return node._replace(text=value, reference=node.reference if value == node.text else "")
    if isinstance(value, list):
        return _list(value, node)
    text_positions = dict.fromkeys(value, node.text_position)
    return MappingNode(
        node.text_position, {key: _list(each, node) for key, each in value.items()}, text_positions
    )


def _list(texts: list[str], like: ScalarNode) -> ListNode:
    return ListNode(
        like.text_position,
        tuple(like._replace(text=each, is_plain=False, reference="") for each in texts),
    )


def _put(
    mapping: MappingNode, keys: tuple[str, ...], value: YamlNode, text_position: TextPosition
) -> MappingNode:
    """`value` under `keys`; lists are joined, anything else may be there only once."""
    key, further = keys[0], keys[1:]
    present = mapping.values.get(key)
    if further:
        if present is None:
            present = MappingNode(text_position, {}, {})
        if not isinstance(present, MappingNode):
            raise ConfigError(f"the option and {key!r} say the same", hint="take one of them out")
        value = _put(present, further, value, text_position)
    elif isinstance(present, ListNode | ScalarNode) and isinstance(value, ListNode):
        items = present.items if isinstance(present, ListNode) else (present,)
        value = ListNode(present.text_position, (*items, *value.items))
    elif present is not None:
        raise ConfigError(f"the option and {key!r} say the same", hint="take one of them out")
    return MappingNode(
        mapping.text_position,
        {**mapping.values, key: value},
        {key: text_position, **mapping.key_positions},
    )
