"""Files that are objects of a bucket."""

from collections.abc import Collection
from contextlib import suppress

from headwater.connectors.files.storage import (
    WILD,
    FileEntry,
    FileGone,
    RawFile,
    choice_of,
    is_hidden,
)
from headwater.core_log.foundation.errors import SourceRejected, SourceUnavailable
from headwater.core_log.s3.bucket import Body, Bucket, ObjectGone
from headwater.core_log.s3.settings import S3Settings

POLL_MS_MIN = 5_000
"""Every look is a request that is paid for."""


class S3FileStorage:
    """An object never changes, it is only replaced: by another one with another ETag."""

    poll_ms_min = POLL_MS_MIN
    has_whole_files = True

    def __init__(self, bucket: str, prefix: str, settings: S3Settings) -> None:
        self._bucket = Bucket(
            bucket, settings, unavailable=SourceUnavailable, rejected=SourceRejected
        )
        self._prefix, self._is_wild = prefix, WILD.search(prefix) is not None
        self._choice = choice_of(prefix, is_directory=not self._is_wild)
        self.default_table = self._choice.table or bucket

    def entries(self, tracked: Collection[str]) -> list[FileEntry]:
        wild = WILD.search(self._prefix)
        prefix = self._prefix if wild is None else self._prefix[: wild.start()]
        found = []
        for each in self._bucket.objects(prefix):
            name = self._name(each.key)
            if name and not is_hidden(name) and self._choice.pattern.fullmatch(name):
                found.append(FileEntry(name, each.key, each.etag, each.size, each.modified_us))
        return sorted(found)

    def open(self, entry: FileEntry) -> RawFile:
        return S3File(self._bucket, entry)

    def check(self) -> None:
        self._bucket.check()

    def _name(self, key: str) -> str:
        """The key below the root; of an object that is the whole prefix, its last part. Empty for
        what is not below it, such as `ordersold/a` beside `orders`, and for made-up directories."""
        root = self._choice.root.strip("/") if self._choice.root != "/" else ""
        if key.endswith("/"):
            return ""
        if not self._is_wild and key == self._prefix:
            return key.rpartition("/")[2]
        if not root:
            return key
        return key.removeprefix(root + "/") if key.startswith(root + "/") else ""


class S3File:
    """Asks for the rest of the object where reading begins, and goes on in that answer while it
    is read in order."""

    def __init__(self, bucket: Bucket, entry: FileEntry) -> None:
        self.entry, self._bucket = entry, bucket
        self._body: Body | None = None
        self._position = 0

    def read(self, position: int, size: int) -> bytes:
        if position >= self.entry.size:
            return b""
        try:
            if self._body is None or position != self._position:
                self.close()
                self._body = self._bucket.open(
                    self.entry.place, start=position, etag=self.entry.identity
                )
                self._position = position
            content = self._bucket.read_from(self._body, size)
        except ObjectGone as error:
            raise FileGone from error
        self._position += len(content)
        return content

    def read_stretch(self, position: int, size: int) -> bytes:
        size = min(size, self.entry.size - position)
        if size <= 0:
            return b""
        try:
            body = self._bucket.open(
                self.entry.place, start=position, size=size, etag=self.entry.identity
            )
            return self._bucket.read_from(body, size)
        except ObjectGone as error:
            raise FileGone from error

    def close(self) -> None:
        body, self._body = self._body, None
        if body is not None:
            with suppress(OSError):
                body.close()
