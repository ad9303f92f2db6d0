"""`headwater log`: shows, checks, mends, backs up and restores the files of a log."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from headwater.pipelines.commands.log_backup import backup, restore
from headwater.pipelines.terminal.control_writer import confirm, yes_option
from headwater.pipelines.terminal.output import (
    DifferencesFound,
    Output,
    format_count,
    shared_options,
    table,
)
from headwater.pipelines.terminal.quantities import time_text

if TYPE_CHECKING:
    from headwater.core_log.model.log import TopicPartition
    from headwater.core_log.records.batch_header import BatchHeader
    from headwater.core_log.storage.files import Files
    from headwater.core_log.storage.verification import LogFinding

DIRECTORY = click.argument("directory", metavar="DIR", type=click.Path(path_type=Path))
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


@click.group()
def log() -> None:
    """Show, check, mend, back up and restore the files of a log.

    DIR is a data directory; for `inspect`, `verify` and `mend` also the directory of one partition,
    such as data/log/orders-0, ours or Apache Kafka's. These three work offline, and only `mend` and
    `restore` write to a log.
    """


log.add_command(backup)
log.add_command(restore)


@log.command()
@DIRECTORY
@click.option("--batches", is_flag=True, help="List every batch of a partition.")
@click.option("--records", is_flag=True, help="List every record of a partition.")
@shared_options
@click.pass_obj
def inspect(output: Output, directory: Path, batches: bool, records: bool) -> None:
    """Show the contents of a log: partitions, segments, batches or records.

    A data directory is shown by partition, a partition by segment, unless --batches or --records
    ask for more. Reading ends at the first damaged batch; `headwater log verify` shows the damage.
    """
    from headwater.core_log.storage.files import OsFiles
    from headwater.core_log.storage.verification import partition_directories

    files = OsFiles(may_write=False)
    found = partition_directories(files, directory)
    if batches or records:
        for partition, path in found.items():
            show_batches(output, files, partition, path, with_records=records)
    elif list(found.values()) == [directory]:
        show_segments(output, files, directory)
    else:
        show_partitions(output, files, found)


def show_partitions(output: Output, files: "Files", found: "dict[TopicPartition, Path]") -> None:
    from headwater.core_log.storage.swap import base_offsets
    from headwater.core_log.storage.verification import survey_segment

    rows = []
    for (topic, number), path in found.items():
        segments = [survey_segment(files, path, base) for base in base_offsets(files.names(path))]
        rows.append(
            {
                "topic": topic,
                "partition": number,
                "segments": len(segments),
                "start_offset": segments[0].base_offset,
                "end_offset": segments[-1].end_offset,
                "records": sum(segment.records for segment in segments),
                "bytes": sum(segment.size for segment in segments),
                "newest": time_text(max(segment.max_timestamp for segment in segments)),
            }
        )
    show_rows(output, rows)


def show_segments(output: Output, files: "Files", directory: Path) -> None:
    from headwater.core_log.storage.swap import base_offsets
    from headwater.core_log.storage.verification import survey_segment

    segments = [
        survey_segment(files, directory, base) for base in base_offsets(files.names(directory))
    ]
    show_rows(
        output,
        [
            {
                "base_offset": segment.base_offset,
                "end_offset": segment.end_offset,
                "batches": segment.batches,
                "records": segment.records,
                "bytes": segment.size,
                "oldest": time_text(segment.first_timestamp),
                "newest": time_text(segment.max_timestamp),
                "indexes": ", ".join(
                    f"{name} {size}" for name, size in sorted(segment.index_sizes.items())
                ),
            }
            for segment in segments
        ],
    )


def show_rows(output: Output, rows: list[dict[str, object]]) -> None:
    head = [name.replace("_", " ").upper() for name in rows[0]]
    output.result(rows, table(head, [list(row.values()) for row in rows]))


def show_batches(
    output: Output,
    files: "Files",
    partition: "TopicPartition",
    directory: Path,
    *,
    with_records: bool,
) -> None:
    """Prints one line per batch, so that a log of any size can be listed."""
    from headwater.core_log.storage.swap import base_offsets
    from headwater.core_log.storage.verification import batches

    for base in base_offsets(files.names(directory)):
        for position, header, data in batches(files, directory, base):
            place: dict[str, object] = {
                "topic": partition.topic,
                "partition": partition.partition,
                "segment": base,
                "position": position,
            }
            if with_records:
                show_records(output, place, data)
            else:
                facts = batch_facts(header)
                output.result(place | facts, [_pairs({"position": position} | facts)])


def batch_facts(header: "BatchHeader") -> dict[str, object]:
    marks = {"transactional": header.is_transactional, "control": header.is_control}
    facts: dict[str, object] = {
        "offsets": f"{header.base_offset}..{header.last_offset}",
        "records": header.record_count,
        "bytes": header.total_bytes,
        "time": time_text(header.max_timestamp),
        "codec": CODECS[header.compression] if header.compression < len(CODECS) else "unknown",
        "epoch": header.leader_epoch,
    }
    if header.has_producer:
        facts["producer"] = f"{header.producer_id}/{header.producer_epoch}"
        facts["sequence"] = header.base_sequence
    return facts | {name: True for name, is_set in marks.items() if is_set}


def show_records(output: Output, place: dict[str, object], data: memoryview) -> None:
    from headwater.core_log.records.record_codec import decode_batch, decode_marker
    from headwater.core_log.replication.metadata import METADATA_TOPIC
    from headwater.pipelines.terminal.record_lines import record_data, record_line

    number, is_metadata = int(str(place["partition"])), place["topic"] == METADATA_TOPIC
    header, records = decode_batch(data)
    for record in records:
        if header.is_control:
            marker = decode_marker(record)
            kind = "control" if marker is None else "commit" if marker.commit else "abort"
            facts = {"offset": record.offset, "marker": kind, "producer_id": header.producer_id}
            line = f"{number}:{record.offset}\t{time_text(record.timestamp_ms)}\t({kind})"
            output.result(place | facts, [line])
        else:
            if is_metadata:
                record = record._replace(value=hide_keys(record.value))
            output.result(place | record_data(record), [record_line(number, record)])


def hide_keys(value: bytes | None) -> bytes | None:
    """Returns a record of the cluster's metadata without what passwords are checked against."""
    import orjson

    from headwater.core_log.foundation.errors import DecodeError
    from headwater.core_log.replication.metadata_records import ScramRecord, decode_record

    try:
        record = decode_record(value or b"")
    except DecodeError:
        return value
    if not isinstance(record, ScramRecord):
        return value
    shown = {"type": "scram", "user": record.user, "mechanism": record.mechanism}
    return orjson.dumps(shown | {"rounds": record.rounds, "keys": "not shown"})


def _pairs(facts: dict[str, object]) -> str:
    return "  ".join(f"{name}={value}" for name, value in facts.items())


@log.command()
@DIRECTORY
@shared_options
@click.pass_obj
def verify(output: Output, directory: Path) -> None:
    """Check every batch, offset and index of a log; exit code 4 if damage is found.

    An incomplete end above the recovery point, as left by a crash, is reported and is no damage:
    the next start truncates it. Run it while no broker writes to the directory.
    """
    from headwater.core_log.storage.files import OsFiles
    from headwater.core_log.storage.verification import (
        LogFinding,
        VerificationStats,
        partition_directories,
        promise_of,
        verify_partition,
    )

    files = OsFiles(may_write=False)
    found = partition_directories(files, directory)
    tally, findings = VerificationStats(), list[LogFinding]()
    for partition, path in found.items():
        output.detail(f"reading {partition.topic}-{partition.partition}")
        findings += verify_partition(files, path, promise_of(files, path.parent, partition), tally)
    data = {
        "partitions": len(found),
        "segments": tally.segments,
        "batches": tally.batches,
        "bytes": tally.size,
        "findings": [finding_facts(finding) for finding in findings],
    }
    damage = [finding for finding in findings if finding.is_damage]
    summary = (
        f"{format_count(len(found), 'partition')}, {format_count(tally.segments, 'segment')}, "
        f"{tally.batches:,} batches, {format_count(tally.size, 'byte')} read: "
    )
    lines = [finding_line(finding) for finding in findings]
    if damage:
        raise DifferencesFound(
            f"the log is damaged in {format_count(len(damage), 'place')}",
            data=data,
            lines=[*lines, f"{summary}damaged"],
            hint="restore it from a backup; without one headwater log mend DIRECTORY lets readers "
            "pass the lost records",
        )
    output.result(data, [*lines, f"{summary}sound"])


def finding_facts(finding: "LogFinding") -> dict[str, object]:
    return {
        "file": finding.file,
        "problem": finding.problem,
        "position": finding.position,
        "first_offset": finding.first_offset,
        "next_offset": finding.next_offset,
        "is_damage": finding.is_damage,
    }


def finding_line(finding: "LogFinding") -> str:
    """Returns `file:position: damage` with the affected offsets."""
    place = finding.file if finding.position is None else f"{finding.file}:{finding.position}"
    kind = "damage" if finding.is_damage else "note"
    offsets = ""
    if finding.next_offset is not None:
        offsets = f" (offsets {finding.first_offset} to {finding.next_offset - 1})"
    elif finding.first_offset is not None:
        offsets = f" (from offset {finding.first_offset} on)"
    return f"{place}: {kind}: {finding.problem}{offsets}"


@log.command()
@DIRECTORY
@yes_option
@shared_options
@click.pass_obj
def mend(output: Output, directory: Path, yes: bool) -> None:
    """Empty the damaged batches of a log, so that readers can pass them.

    The records of such a batch are lost; all others stay, at their offsets. A copy of each changed
    segment is kept beside it. The next start checks the log as after a crash. docs/log-format.md
    explains the loss and the further steps.
    """
    from headwater.core_log.foundation.clock import unix_ms
    from headwater.core_log.replication.metadata import METADATA_TOPIC
    from headwater.core_log.storage.damaged_batches import empty_damaged
    from headwater.core_log.storage.files import OsFiles
    from headwater.core_log.storage.properties import take_clean_stop
    from headwater.core_log.storage.store import lock_if_owned
    from headwater.core_log.storage.verification import partition_directories, promise_of

    confirm(f"Empty every damaged batch of {directory}?", yes=yes)
    files, facts, now_ms = OsFiles(), list[dict[str, object]](), unix_ms()
    found = partition_directories(files, directory)
    log_directory = next(iter(found.values())).resolve().parent
    with lock_if_owned(files, log_directory):
        for partition, path in found.items():
            if partition.topic == METADATA_TOPIC:
                continue  # a topic that loses a decision looks like one that never had it
            output.detail(f"reading {partition.topic}-{partition.partition}")
            promise = promise_of(files, path.resolve().parent, partition)
            for each in empty_damaged(files, path, promise, now_ms=now_ms):
                take_clean_stop(files, log_directory)
                facts.append({**partition._asdict(), **each._asdict()})
    lines = [
        f"{each['file']}: emptied offsets {each['first_offset']} to {each['next_offset']}, the"
        f" last not included: {each['reason']}"
        for each in facts
    ]
    copies = sorted({str(each["copy"]) for each in facts})
    lines += [f"{copy}: the segment as it was" for copy in copies]
    summary = f"{format_count(len(facts), 'place')} mended" if facts else "nothing to mend"
    output.result(facts, [*lines, summary])
