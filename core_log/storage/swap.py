"""Replaces segments by the compacted segment made from them, completely or not at all."""

from collections.abc import Iterable
from pathlib import Path

from headwater.core_log.storage.files import Files
from headwater.core_log.storage.segment import ABORTED, INDEX, LOG, SUFFIXES, TIMES, file_name

CLEANED = ".cleaned"
SWAP = ".swap"
DELETED = ".deleted"
UNFINISHED = (CLEANED, DELETED, ".tmp")
"""Files that an opening removes: they belong to work that cannot continue."""
DIGITS = 20


def cleaned_path(directory: Path, base_offset: int, suffix: str) -> Path:
    """Returns where compaction writes a new segment's file."""
    return directory / (file_name(base_offset, suffix) + CLEANED)


def cleaned_paths(directory: Path, base_offset: int) -> list[Path]:
    """Returns all files that compaction may have written for one segment."""
    return [cleaned_path(directory, base_offset, suffix) for suffix in SUFFIXES]


def commit_swap(files: Files, directory: Path, base_offset: int, end_offset: int) -> None:
    """Decides that the cleaned segment replaces all segments starting in [base, end).

    Its files are complete and synced. One rename decides; `finish_swap` may be repeated after it.
    """
    files.sync_directory(directory)
    target = directory / f"{base_offset:0{DIGITS}d}-{end_offset:0{DIGITS}d}{SWAP}"
    files.rename(cleaned_path(directory, base_offset, LOG), target)
    files.sync_directory(directory)


def finish_swap(files: Files, directory: Path, base_offset: int, end_offset: int) -> list[Path]:
    """Gives the cleaned files their names, the log's own last; the caller removes the replaced
    ones."""
    replaced = [
        file_name(base, suffix)
        for base in base_offsets(files.names(directory))
        if base_offset <= base < end_offset
        for suffix in reversed(SUFFIXES)  # while the log has its name, the rest is found again
    ]
    aside = set_aside(files, directory, replaced)
    for suffix in (INDEX, TIMES, ABORTED):
        cleaned = cleaned_path(directory, base_offset, suffix)
        if files.exists(cleaned):
            files.rename(cleaned, directory / file_name(base_offset, suffix))
    swap = directory / f"{base_offset:0{DIGITS}d}-{end_offset:0{DIGITS}d}{SWAP}"
    files.rename(swap, directory / file_name(base_offset, LOG))
    files.sync_directory(directory)
    return aside


def finish_swaps(files: Files, directory: Path) -> None:
    """Completes swaps that a crash interrupted after the decision."""
    for name in files.names(directory):
        first, _, second = name.removesuffix(SWAP).partition("-")
        if name.endswith(SWAP) and first.isdigit() and second.isdigit():
            for path in finish_swap(files, directory, int(first), int(second)):
                files.remove(path)


def set_aside(files: Files, directory: Path, names: Iterable[str]) -> list[Path]:
    """Renames files that are to be removed: renaming is quick, removing large files is not."""
    aside = []
    for name in names:
        path = directory / name
        if files.exists(path):
            target = path.with_name(name + DELETED)
            files.rename(path, target)
            aside.append(target)
    return aside


def base_offsets(names: Iterable[str]) -> list[int]:
    """Returns the base offsets of the segments in a directory, oldest first."""
    stems = (name.removesuffix(LOG) for name in names if name.endswith(LOG))
    return sorted(int(stem) for stem in stems if stem.isdigit() and len(stem) == DIGITS)
