"""`headwater log backup` and `log restore`: copies of a log in a directory or in S3."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from headwater.core_log.foundation.errors import ConfigError
from headwater.pipelines.terminal.log_address import (
    DEFAULT_DATA,
    DEFAULT_FILE,
    chosen_file,
    file_option,
)
from headwater.pipelines.terminal.output import Output, format_count, shared_options
from headwater.pipelines.terminal.quantities import size_text
from headwater.pipelines.terminal.signals import run_until_signal

if TYPE_CHECKING:
    from headwater.core_log.objects.store import ObjectStore
    from headwater.pipelines.backup.backup import BackupResult

LOCK = "backup.lock"
S3_OPTION = click.option(
    "--s3",
    "s3_words",
    metavar="NAME=VALUE",
    multiple=True,
    help="A setting of the bucket, such as endpoint=http://127.0.0.1:9000 or path_style=true; may "
    "be repeated. Credentials are found as the AWS tools find them.",
)


@click.command()
@click.argument("to", metavar="TO")
@click.option(
    "--data",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Data directory of the log.  [default: that of ./pipeline.yaml, else data]",
)
@click.option(
    "--keep",
    type=click.IntRange(min=1),
    metavar="N",
    help="Remove older backups than the newest N.",
)
@S3_OPTION
@file_option
@shared_options
@click.pass_obj
def backup(
    output: Output, to: str, data: Path | None, keep: int | None, s3_words: tuple[str, ...]
) -> None:
    """Copy the log to TO, a directory or s3://BUCKET/PREFIX, while it is used.

    A backup is the log as a power cut at one moment would leave it: every transaction is in it
    whole or not at all. Only what changed since earlier backups is sent. TO belongs to one log.
    """
    result = run_until_signal(_back_up(output, to, data or _data_directory(), keep, s3_words))
    lines = [
        f"{result.name}: {format_count(result.files, 'file')}, {size_text(result.size)},"
        f" {size_text(result.sent)} of them sent"
    ]
    if result.removed:
        lines.append(f"{format_count(result.removed, 'older backup')} removed")
    facts = {
        "name": result.name,
        "files": result.files,
        "bytes": result.size,
        "bytes_sent": result.sent,
        "removed": result.removed,
    }
    output.result(facts, lines)


def _data_directory() -> Path:
    file = chosen_file() or DEFAULT_FILE
    if not file.exists():
        return DEFAULT_DATA
    from headwater.pipelines.terminal.log_place import place_in

    return place_in(file).data


async def _back_up(
    output: Output, to: str, data: Path, keep: int | None, s3_words: tuple[str, ...]
) -> "BackupResult":
    import asyncio

    from headwater.core_log.foundation.clock import unix_ms
    from headwater.core_log.storage.files import OsFiles
    from headwater.pipelines.backup.backup import back_up
    from headwater.pipelines.backup.held_files import held_files
    from headwater.pipelines.terminal.log_place import PROPERTIES

    if not (data / PROPERTIES).is_file():
        raise ConfigError("the directory has no log", hint="name it: --data DIR")
    store = _store(to, s3_words)
    store.check(writes=True)
    lock = OsFiles().lock(data / LOCK)
    if lock is None:
        raise ConfigError("another backup of this log is running", hint="wait for its end")
    async with held_files(data) as held:
        return await asyncio.to_thread(
            back_up,
            data,
            held,
            store,
            now_ms=unix_ms(),
            keep=keep,
            progress=lambda name: output.detail(f"copying {name}"),
        )


@click.command()
@click.argument("source", metavar="FROM")
@click.argument(
    "directory", metavar="DIR", type=click.Path(path_type=Path, file_okay=False), required=False
)
@click.option("--backup", "name", metavar="NAME", help="Another backup than the newest.")
@click.option("--list", "lists", is_flag=True, help="Only list the backups.")
@S3_OPTION
@shared_options
@click.pass_obj
def restore(
    output: Output,
    source: str,
    directory: Path | None,
    name: str | None,
    lists: bool,
    s3_words: tuple[str, ...],
) -> None:
    """Make the data directory DIR from the newest backup in FROM.

    Every chunk is checked by its checksum, and the next start checks every batch. A restored log is
    behind its source and its targets, so pipelines would stop. The last line names the command that
    reads the tables again and rebuilds the targets.
    """
    from headwater.pipelines.backup.backup import backup_names, choose_backup
    from headwater.pipelines.backup.backup import restore as restore_log
    from headwater.pipelines.terminal.quantities import time_text

    store = _store(source, s3_words)
    if lists:
        names = backup_names(store)
        output.result({"backups": names}, names)
        return
    if directory is None:
        raise ConfigError(
            "the data directory to fill is missing", hint=f"headwater log restore {source} DIR"
        )
    chosen = choose_backup(store, name)
    manifest = restore_log(
        store, chosen, directory, progress=lambda path: output.detail(f"writing {path}")
    )
    facts: dict[str, Any] = {
        "name": chosen,
        "directory": str(directory),
        "files": len(manifest.files),
        "bytes": manifest.size,
        "at_ms": manifest.at_ms,
        "next": "headwater recover FILE",
    }
    output.result(
        facts,
        [
            f"{directory} is the log as of {time_text(manifest.at_ms)}:"
            f" {format_count(len(manifest.files), 'file')}, {size_text(manifest.size)}",
            "pipelines go on after this, which reads their tables again and rebuilds targets:",
            "headwater recover FILE",
        ],
    )


def _store(place: str, s3_words: tuple[str, ...]) -> "ObjectStore":
    from pydantic import ValidationError

    from headwater.core_log.objects.settings import S3Settings
    from headwater.core_log.objects.store import SINK_ERRORS, store_of

    pairs = [word.partition("=") for word in s3_words]
    try:
        settings = S3Settings.model_validate({name: value for name, _, value in pairs})
    except ValidationError as error:
        [first, *_] = error.errors(include_input=False)
        setting = ".".join(map(str, first["loc"]))
        raise ConfigError("the setting of the bucket is wrong", setting=setting) from None
    return store_of(place, settings, directory=Path.cwd(), errors=SINK_ERRORS)
