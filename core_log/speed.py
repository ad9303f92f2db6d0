"""Whether decoders run as plain Python or as their compiled twins."""

import os
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Literal

from core_log.errors import ConfigError

Speed = Literal["python", "fast"]

VARIABLE = "HEADWATER_SPEED"
INSTALL = "pip install 'headwater[fast]'"


def chosen_speed(environment: Mapping[str, str] = os.environ) -> Speed:
    """`fast` where the compiler is installed; the environment may force either."""
    wanted = environment.get(VARIABLE, "")
    can_compile = find_spec("numba") is not None
    match wanted:
        case "":
            return "fast" if can_compile else "python"
        case "python":
            return "python"
        case "fast" if can_compile:
            return "fast"
        case "fast":
            raise ConfigError("the compiler for the fast decoders is not installed", hint=INSTALL)
    raise ConfigError(
        f"{VARIABLE} is neither python nor fast", hint=f"unset {VARIABLE}", value=wanted
    )
