"""From a pipeline file, or a directory of them, to settings that are checked and components that
are found; every mistake of every file is told at once."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core_log.settings import Settings
from pipelines.spec import PipelineSpec, SinkUnit, SourceUnit


@dataclass(frozen=True, slots=True)
class LoadedPart:
    """A source or a sink: its class and its settings, nothing opened yet."""

    name: str
    """The unit's name: `source`, or a sink's own."""
    kind: str
    """What `type:` says."""
    component: type[Any]
    """Made as `component(settings, context)`."""
    settings: Settings
    unit: SourceUnit | SinkUnit
    """The keys that do not depend on the type. A component that declares one of them itself, such
    as another default of `commit_every`, has it in `settings`; see `unit_setting`."""

    def unit_setting(self, name: str) -> Any:
        """A field of `unit`, from the component's settings where they declare it."""
        return getattr(self.settings if hasattr(self.settings, name) else self.unit, name)


@dataclass(frozen=True, slots=True)
class LoadedPipeline:
    """One pipeline, as a file says it, with every reference resolved: it holds secrets."""

    name: str
    path: Path
    directory: Path
    """Relative paths are meant from here."""
    spec: PipelineSpec
    source: LoadedPart
    sinks: tuple[LoadedPart, ...]

    def to_wire(self) -> bytes:
        """For a worker process, over a pipe; secrets included, so never for a file or a topic."""
        raise NotImplementedError

    @staticmethod
    def from_wire(content: bytes) -> "LoadedPipeline":
        raise NotImplementedError


def load(path: Path, *, environment: Mapping[str, str]) -> list[LoadedPipeline]:
    """The pipelines of one file, or of every `*.yaml` and `*.yml` straight below a directory."""
    raise NotImplementedError
