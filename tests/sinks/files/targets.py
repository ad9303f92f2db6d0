"""Empty targets for the files sink, and stores that fail."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from headwater.core_log.foundation.errors import SinkUnavailable
from headwater.core_log.objects.settings import S3Settings
from headwater.core_log.objects.store import ObjectReader, ObjectStore, StoredObject
from headwater.sinks.files import formats
from headwater.sinks.files.settings import FilesSinkSettings
from headwater.sinks.files.sink import FilesSink
from headwater.sinks.sink import SinkContext
from tests.fakes import SimulatedClock

ADDED = ("_headwater_op", "_headwater_offset", "_headwater_committed_at")


@dataclass(slots=True)
class FilesBench:
    """A directory or a bucket, and sinks of the pipeline `shop` on it."""

    path: str
    s3: S3Settings = field(default_factory=S3Settings)
    chosen: dict[str, Any] = field(default_factory=dict)
    pipeline: str = "shop"

    def sink(self, store: ObjectStore | None = None) -> FilesSink:
        settings = FilesSinkSettings.model_validate(
            {"path": self.path, "s3": self.s3, **self.chosen}
        )
        context = SinkContext(self.pipeline, Path("/"), {}, SimulatedClock(1_700_000_000_000))
        return FilesSink(settings, context, store=store)

    async def rows(self, table: str) -> list[dict[str, Any]]:
        found = formats.table(self.path, table, s3=self.s3)
        kept = [name for name in found.column_names if name not in ADDED]
        rows: list[dict[str, Any]] = found.select(kept).to_pylist()
        return rows

    def poison(self) -> None:
        """There is no value that a file cannot hold."""


@dataclass(slots=True)
class BreakingStore:
    """Another store, until the n-th change of it: that one is made but not answered, and nothing
    goes through any more, as when the process is killed there."""

    inner: ObjectStore
    breaks_at: int
    changes: int = 0
    is_broken: bool = False

    def read(self, name: str) -> bytes | None:
        self._check()
        return self.inner.read(name)

    def put(self, name: str, content: bytes) -> None:
        self._begin()
        self.inner.put(name, content)
        self._end()

    def create(self, name: str, content: bytes) -> bool:
        self._begin()
        is_made = self.inner.create(name, content)
        self._end()
        return is_made

    def upload(self, name: str, path: Path) -> None:
        self._begin()
        self.inner.upload(name, path)
        self._end()

    @property
    def local_root(self) -> Path | None:
        return self.inner.local_root

    def objects(
        self, prefix: str, *, may_enter: Callable[[str], bool] | None = None
    ) -> list[StoredObject]:
        self._check()
        return self.inner.objects(prefix, may_enter=may_enter)

    def open(self, each: StoredObject) -> ObjectReader:
        self._check()
        return self.inner.open(each)

    def remove(self, names: Sequence[str]) -> None:
        self._begin()
        self.inner.remove(names)
        self._end()

    def check(self, prefix: str = "", *, writes: bool) -> None:
        self.inner.check(prefix, writes=writes)

    def address(self, name: str) -> str:
        return self.inner.address(name)

    def _check(self) -> None:
        if self.is_broken:
            raise SinkUnavailable("the process is gone")

    def _begin(self) -> None:
        self._check()
        self.changes += 1

    def _end(self) -> None:
        if self.changes == self.breaks_at:
            self.is_broken = True
            self._check()


class AlteredStore:
    """Another store but for some of its operations."""

    def __init__(self, inner: ObjectStore, operations: dict[str, Any]) -> None:
        self._inner = inner
        self.__dict__ |= operations

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def altered(inner: ObjectStore, **operations: Any) -> ObjectStore:
    return cast(ObjectStore, AlteredStore(inner, operations))
