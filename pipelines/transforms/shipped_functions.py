"""Functions beside a pipeline file on their way to machines that do not have its directory."""

import ast
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from hashlib import sha256
from pathlib import Path

from headwater.core_log.foundation.errors import ConfigError


@dataclass(frozen=True, slots=True)
class ShippedModules:
    """Python files by their paths from the directory that they were beside the file in."""

    files: Mapping[str, bytes] = field(default_factory=dict)

    def put_down(self) -> Path:
        """A directory of this machine that has them, made by whoever comes first."""
        digest = sha256(repr(sorted(self.files.items())).encode()).hexdigest()[:32]
        place = Path(tempfile.gettempdir()) / f"headwater-functions-{os.getuid()}-{digest}"
        if not place.is_dir():
            fresh = Path(tempfile.mkdtemp(prefix=f"{place.name}.", dir=place.parent))
            for name, content in self.files.items():
                path = fresh / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
            try:
                fresh.rename(place)
            except OSError:  # another process was faster
                shutil.rmtree(fresh)
        if place.lstat().st_uid != os.getuid():  # its name can be guessed, and it is executed
            raise ConfigError("somebody else has put down our functions", path=str(place))
        return place


@cache
def ship_modules(modules: Sequence[str], directory: Path) -> ShippedModules:
    """These modules, and what they import of what lies beside them, as they are when this is first
    asked: a process does not read them again either."""
    files: dict[str, bytes] = {}
    waiting = [name.partition(".")[0] for name in modules]
    while waiting:
        for path in _files_of(waiting.pop(), directory):
            name = path.relative_to(directory).as_posix()
            if name not in files:
                files[name] = path.read_bytes()
                waiting += _imported_by(files[name])
    return ShippedModules(files)


def _files_of(module: str, directory: Path) -> list[Path]:
    alone = directory / f"{module}.py"
    package = directory / module
    if (package / "__init__.py").is_file():
        return sorted(package.rglob("*.py"))
    return [alone] if alone.is_file() else []


def _imported_by(content: bytes) -> Iterator[str]:
    for node in ast.walk(ast.parse(content)):
        if isinstance(node, ast.Import):
            yield from (each.name.partition(".")[0] for each in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0]
