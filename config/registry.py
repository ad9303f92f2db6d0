"""From the `type:` of a source or a sink to the class behind it, imported when it is used."""

from collections.abc import Mapping
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any

from headwater.config.mistakes import did_you_mean
from headwater.core_log.foundation.errors import ConfigError
from headwater.core_log.foundation.settings import Settings

OURS = "headwater"


def known_types(targets: Mapping[str, str], *, group: str) -> dict[str, str]:
    """Ours, and those that other installed packages offer under the entry point group."""
    offered = {each.name: each.value for each in entry_points(group=group)}
    return offered | dict(targets)


def _cure(missing: str) -> str:
    package = missing.partition(".")[0]
    return "install headwater again" if package == OURS else f"pip install {package}"


def load_type(name: str, targets: Mapping[str, str], *, group: str) -> type[Any]:
    """The class behind a name; ours win over those of other packages."""
    target = targets.get(name)
    if target is None:
        known = known_types(targets, group=group)
        if name not in known:
            raise ConfigError(f"type {name!r} is unknown", hint=did_you_mean(name, list(known)))
        target = known[name]
    component = _name(name, target)
    settings = getattr(component, "Settings", None)
    if not (isinstance(settings, type) and issubclass(settings, Settings)):
        raise ConfigError(f"the type {name!r} has no Settings", component=target)
    return component


def load_settings(
    name: str, settings: Mapping[str, str], targets: Mapping[str, str], *, group: str
) -> type[Settings]:
    """Returns the settings class of a type. One of ours is loaded without the class that does the
    work, and all that comes with that."""
    found: type[Settings]
    if name in settings:
        found = _name(name, settings[name])
    else:
        found = load_type(name, targets, group=group).Settings
    return found


def _name(name: str, target: str) -> type[Any]:
    module, _, attribute = target.partition(":")
    try:
        found: type[Any] = getattr(import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        missing = getattr(error, "name", None) or module
        raise ConfigError(
            f"the type {name!r} cannot be loaded, {missing} is missing",
            hint=_cure(missing),
        ) from error
    return found
