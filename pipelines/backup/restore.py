"""Makes a data directory again from a backup; each chunk is checked by its checksum."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

from headwater.core_log.foundation.errors import ConfigError, CorruptLog
from headwater.core_log.objects.store import ObjectStore
from headwater.pipelines.backup.manifest import (
    BackupManifest,
    StoredFile,
    chunk_name,
    read_manifest,
    sha256,
)

PARTIAL = ".restoring"
"""Ending of the directory until it is whole."""


def restore(
    store: ObjectStore, name: str, data: Path, *, progress: Callable[[str], None] = lambda _: None
) -> BackupManifest:
    """Fills a directory that does not exist or is empty; it gets its name when it is whole."""
    data = data.absolute()
    if data.is_mount():  # a directory beside it would be on another file system
        raise ConfigError(
            "the directory is a mount point",
            hint=f"name one inside it: {data / 'log'}",
            directory=str(data),
        )
    if data.exists() and any(data.iterdir()):
        raise ConfigError(
            "the data directory is not empty",
            hint="move it away, or name another one",
            directory=str(data),
        )
    manifest = read_manifest(store, name)
    partial = data.with_name(data.name + PARTIAL)
    if partial.exists():  # left by one that was interrupted
        shutil.rmtree(partial)
    directories = {partial}
    for path, stored in manifest.files.items():
        progress(path)
        if Path(path).is_absolute() or ".." in Path(path).parts:
            raise CorruptLog("the backup has a file outside of its directory", file=path)
        target = partial / path
        target.parent.mkdir(parents=True, exist_ok=True)
        directories |= {target.parent, target.parent.parent}
        _write(store, stored, target)
    for directory in directories:
        _sync(directory)
    if data.exists():
        data.rmdir()
    partial.rename(data)
    _sync(data.parent)
    return manifest


def _write(store: ObjectStore, stored: StoredFile, target: Path) -> None:
    with target.open("wb") as file:
        for chunk in stored.chunks:
            content = store.read(chunk_name(chunk))
            if content is None or sha256(content) != chunk:
                state = "missing" if content is None else "damaged"
                raise CorruptLog(
                    f"a chunk of the backup is {state}",
                    hint="restore another backup: --backup NAME",
                    chunk=store.address(chunk_name(chunk)),
                    file=target.name,
                )
            file.write(content)
        if file.tell() != stored.size:
            raise CorruptLog("a file of the backup has another size", file=target.name)
        file.flush()
        os.fsync(file.fileno())


def _sync(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
