"""Which place a path means: a directory or a bucket."""

from pathlib import Path

from headwater.connectors.files.directory import Directory
from headwater.connectors.files.settings import FilesSettings
from headwater.connectors.files.storage import FileStorage
from headwater.core_log.foundation.errors import ConfigError

S3_SCHEME = "s3://"


def place_of(settings: FilesSettings, directory: Path) -> FileStorage:
    if settings.path.startswith(S3_SCHEME):
        from headwater.connectors.files.s3_storage import S3FileStorage

        bucket, _, prefix = settings.path.removeprefix(S3_SCHEME).partition("/")
        if not bucket:
            raise ConfigError("a path in S3 names its bucket", hint="path: s3://BUCKET/PREFIX")
        return S3FileStorage(bucket, prefix, settings.s3)
    return Directory(directory / Path(settings.path).expanduser())
