"""The location of a lake: a directory or a bucket, for PyArrow, deltalake and our own store."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headwater.core_log.foundation.errors import SinkRejected
from headwater.core_log.objects.directory import make_directory
from headwater.core_log.objects.settings import S3Settings
from headwater.core_log.objects.store import S3_SCHEME, SINK_ERRORS, ObjectStore, store_of
from headwater.core_log.storage.files import OsFiles

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem


@dataclass(frozen=True, slots=True)
class StorageLocation:
    """A directory of the lake. It is pickled for executors, with its credentials."""

    root: str
    """An absolute path, or `s3://BUCKET/PREFIX`."""
    s3: S3Settings = field(default_factory=S3Settings, repr=False)

    def __truediv__(self, name: str) -> "StorageLocation":
        return StorageLocation(f"{self.root}/{name}", self.s3)

    @property
    def is_local(self) -> bool:
        return not self.root.startswith(S3_SCHEME)

    @property
    def store(self) -> ObjectStore:
        return store_of(self.root, self.s3, directory=Path("/"), errors=SINK_ERRORS)

    @property
    def options(self) -> dict[str, str]:
        """Returns the options of deltalake."""
        if self.is_local:
            return {}
        settings = self.s3
        found = {
            "AWS_ENDPOINT_URL": settings.endpoint,
            "AWS_ALLOW_HTTP": "true" if settings.endpoint.startswith("http://") else "",
            "AWS_REGION": settings.region,
            "AWS_ACCESS_KEY_ID": _secret(settings.access_key),
            "AWS_SECRET_ACCESS_KEY": _secret(settings.secret_key),
            "AWS_SESSION_TOKEN": _secret(settings.session_token),
            "AWS_VIRTUAL_HOSTED_STYLE_REQUEST": "false" if settings.path_style else "",
            "AWS_CONDITIONAL_PUT": "etag",
        }
        return {name: value for name, value in found.items() if value}

    @property
    def iceberg_options(self) -> dict[str, str]:
        """Returns the options of pyiceberg."""
        if self.is_local:
            return {}
        settings = self.s3
        found = {
            "s3.endpoint": settings.endpoint,
            "s3.region": settings.region,
            "s3.access-key-id": _secret(settings.access_key),
            "s3.secret-access-key": _secret(settings.secret_key),
            "s3.session-token": _secret(settings.session_token),
            "s3.force-virtual-addressing": "false" if settings.path_style else "",
        }
        return {name: value for name, value in found.items() if value}

    @contextmanager
    def reading(self, name: str) -> Iterator[pa.NativeFile]:
        with self._failures(name), self._files.open_input_file(self._at(name)) as file:
            yield file

    @contextmanager
    def writing(self, name: str) -> Iterator[pa.NativeFile]:
        """Opens a file for writing: durable at the end, under a name that was never used before."""
        with self._failures(name):
            path = self._at(name)
            if self.is_local:
                make_directory(Path(path).parent)
            with self._files.open_output_stream(path) as file:
                yield file
            if self.is_local:
                files = OsFiles()
                files.open(Path(path)).sync()
                files.sync_directory(Path(path).parent)

    @property
    def _files(self) -> "FileSystem":
        from pyarrow import fs

        if self.is_local:
            return fs.LocalFileSystem()
        settings = self.s3
        scheme, _, host = settings.endpoint.rpartition("://")
        chosen: dict[str, Any] = {
            "access_key": _secret(settings.access_key) or None,
            "secret_key": _secret(settings.secret_key) or None,
            "session_token": _secret(settings.session_token) or None,
            "region": settings.region or None,
            "endpoint_override": host or None,
            "scheme": scheme or None,
            "connect_timeout": settings.timeout_ms / 1_000,
            "request_timeout": settings.timeout_ms / 1_000,
            "force_virtual_addressing": False if settings.path_style else None,
        }
        return fs.S3FileSystem(**{name: each for name, each in chosen.items() if each is not None})

    def _at(self, name: str) -> str:
        return f"{self.root.removeprefix(S3_SCHEME)}/{name}"

    @contextmanager
    def _failures(self, name: str) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError as error:
            raise SinkRejected(
                "a file of the table is missing",
                hint="headwater rebuild PIPELINE/TABLE --swap makes the table anew",
                file=f"{self.root}/{name}",
            ) from error
        except pa.ArrowInvalid as error:
            raise SinkRejected(
                "a file of the table cannot be read",
                hint="headwater rebuild PIPELINE/TABLE --swap makes the table anew",
                file=f"{self.root}/{name}",
            ) from error
        except OSError as error:
            raise SINK_ERRORS.refusal(
                "the lake's store refuses access",
                error,
                error.errno,
                path=f"{self.root}/{name}",
                reason=error.strerror or type(error).__name__,
            ) from error


def place_of(path: str, s3: S3Settings, *, directory: Path) -> StorageLocation:
    if path.startswith(S3_SCHEME):
        return StorageLocation(path.rstrip("/"), s3)
    return StorageLocation(str((directory / Path(path).expanduser()).absolute()), s3)


def _secret(value: Any) -> str:
    return "" if value is None else str(value.get_secret_value())
