"""The definition of a configuration key of Kafka: name, type, default, limits, and its parser."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum

from headwater.core_log.foundation.errors import ConfigError

Value = bool | int | float | str | tuple[str, ...]
ValueCheck = Callable[[Value], str | None]
"""Returns the error of a value of the right type, or None."""

INT_MAX = (1 << 31) - 1
LONG_MAX = (1 << 63) - 1


class ConfigType(IntEnum):
    """Types of values, with DescribeConfigs' numbers."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    LONG = 5
    DOUBLE = 6
    LIST = 7


class ConfigSource(IntEnum):
    """Sources of values, with DescribeConfigs' numbers."""

    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5


@dataclass(frozen=True, slots=True)
class ConfigKey:
    """One row of the table of configuration keys."""

    name: str
    type: ConfigType
    default: str
    broker_name: str | None
    """The name of this key's broker-wide default in Kafka's server.properties; None where only a
    topic itself can have a value."""
    documentation: str
    check: ValueCheck | None = None
    has_derived_default: bool = False
    """Whether Kafka derives the default from a setting with another unit, so that it is no synonym
    of the value."""

    def parse(self, text: str) -> Value:
        """Returns the value as its type; raises `ConfigError` for invalid text."""
        value = _PARSE[self.type](self.name, text.strip())
        problem = None if self.check is None else self.check(value)
        if problem is not None:
            raise _invalid(self.name, text, problem)
        return value

    def normal(self, text: str) -> str:
        """Returns the text as Kafka would show it."""
        value = self.parse(text)
        if isinstance(value, bool):
            return "true" if value else "false"
        return ",".join(value) if isinstance(value, tuple) else str(value)


def at_least(least: float) -> ValueCheck:
    def check(value: Value) -> str | None:
        assert isinstance(value, int | float), "only numbers have a least value"
        return None if value >= least else f"value must be at least {least}"

    return check


def between(least: float, most: float) -> ValueCheck:
    def check(value: Value) -> str | None:
        assert isinstance(value, int | float), "only numbers have a range"
        return None if least <= value <= most else f"value must be from {least} to {most}"

    return check


def gzip_level(value: Value) -> str | None:
    return None if value in (-1, *range(1, 10)) else "value must be -1, or from 1 to 9"


def one_of(*known: str) -> ValueCheck:
    def check(value: Value) -> str | None:
        return None if value in known else f"value must be one of {', '.join(known)}"

    return check


def some_of(*known: str) -> ValueCheck:
    def check(value: Value) -> str | None:
        assert isinstance(value, tuple), "only lists have members"
        return None if set(value) <= set(known) else f"value may name only {', '.join(known)}"

    return check


def only(allowed: Value, reason: str) -> ValueCheck:
    """Returns the check of a key for which this broker supports one value only."""

    def check(value: Value) -> str | None:
        return None if value == allowed else reason

    return check


def _parse_boolean(name: str, text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise _invalid(name, text, "Expected value to be either true or false")
    return text.lower() == "true"


def _integer(kind: ConfigType, most: int) -> Callable[[str, str], int]:
    def parse(name: str, text: str) -> int:
        digits = text.removeprefix("-").removeprefix("+")
        is_number = digits.isascii() and digits.isdigit() and len(digits) < 20
        if not is_number or not -most - 1 <= int(text) <= most:
            raise _invalid(name, text, f"Not a number of type {kind.name}")
        return int(text)

    return parse


def _parse_double(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise _invalid(name, text, "Not a number of type DOUBLE") from None


def _parse_list(name: str, text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(each.strip() for each in text.split(",") if each.strip()))


def _parse_string(name: str, text: str) -> str:
    return text


_PARSE: dict[ConfigType, Callable[[str, str], Value]] = {
    ConfigType.BOOLEAN: _parse_boolean,
    ConfigType.STRING: _parse_string,
    ConfigType.INT: _integer(ConfigType.INT, INT_MAX),
    ConfigType.LONG: _integer(ConfigType.LONG, LONG_MAX),
    ConfigType.DOUBLE: _parse_double,
    ConfigType.LIST: _parse_list,
}


def _invalid(name: str, text: str, problem: str) -> ConfigError:
    shown = text if len(text) <= 100 else text[:100] + "..."
    return ConfigError(f"Invalid value {shown} for configuration {name}: {problem}")
