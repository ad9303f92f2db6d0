"""The pipeline files that a path means."""

from pathlib import Path

from headwater.core_log.foundation.errors import ConfigError

SUFFIXES = (".yaml", ".yml")
FILES_MAX = 1_000


def files_at(path: Path) -> list[Path]:
    """The file itself, or a directory's pipeline files in the order of their names."""
    if not path.is_dir():
        return [path]
    found = sorted(
        each for each in path.iterdir() if each.suffix in SUFFIXES and not each.name.startswith(".")
    )
    if not found:
        raise ConfigError(
            "the directory has no pipeline file", directory=str(path), hint="headwater init"
        )
    if len(found) > FILES_MAX:
        raise ConfigError(
            "the directory has too many pipeline files", files=len(found), at_most=FILES_MAX
        )
    return found
