"""What a topic's own configuration becomes when somebody changes it, key by key or as a whole."""

from collections.abc import Iterable, Mapping

from headwater.core_log.foundation.errors import ConfigError
from headwater.core_log.protocol.error_codes import ErrorCode
from headwater.core_log.replication.config_keys import ConfigType
from headwater.core_log.replication.decisions import ConfigChange, ConfigOperation, RequestRefusal
from headwater.core_log.replication.topic_config import TopicConfigs, key_of


def new_config(
    configs: TopicConfigs,
    wanted: Mapping[str, str | None],
    *,
    null_code: ErrorCode = ErrorCode.INVALID_CONFIG,
) -> dict[str, str] | RequestRefusal:
    """The configuration of a new topic, or of one whose configuration is replaced; Kafka has a code
    of its own for a null in the latter.
    """
    nulls = [name for name, value in wanted.items() if value is None]
    if nulls:
        return RequestRefusal(null_code, f"Null is not a value of {', '.join(nulls)}")
    config = {name: value for name, value in wanted.items() if value is not None}
    return _check(configs, config)


def changed_config(
    configs: TopicConfigs, current: Mapping[str, str], changes: Iterable[ConfigChange]
) -> dict[str, str] | RequestRefusal:
    """`current` after the changes; it is not touched itself."""
    config = dict(current)
    for name, operation, value in changes:
        if operation is ConfigOperation.DELETE:
            config.pop(name, None)
        elif value is None:
            return RequestRefusal(ErrorCode.INVALID_REQUEST, f"Null is not a value of {name}")
        elif operation is ConfigOperation.SET:
            config[name] = value
        else:
            merged = _merge(configs, config, name, operation, value)
            if isinstance(merged, RequestRefusal):
                return merged
            config[name] = merged
    return _check(configs, config)


def _merge(
    configs: TopicConfigs,
    config: Mapping[str, str],
    name: str,
    operation: ConfigOperation,
    value: str,
) -> str | RequestRefusal:
    try:
        key = key_of(name)
    except ConfigError as error:
        return RequestRefusal(ErrorCode.INVALID_CONFIG, error.problem)
    if key.type is not ConfigType.LIST:
        return RequestRefusal(
            ErrorCode.INVALID_CONFIG, f"Cannot {operation.name} to {name}, which is not a list"
        )
    parts = [each.strip() for each in configs.text(config, name).split(",") if each.strip()]
    given = [each.strip() for each in value.split(",") if each.strip()]
    if operation is ConfigOperation.APPEND:
        return ",".join(dict.fromkeys([*parts, *given]))
    return ",".join(each for each in parts if each not in given)


def _check(configs: TopicConfigs, config: dict[str, str]) -> dict[str, str] | RequestRefusal:
    try:
        configs.check(config)
    except ConfigError as error:
        return RequestRefusal(ErrorCode.INVALID_CONFIG, error.problem)
    return config
