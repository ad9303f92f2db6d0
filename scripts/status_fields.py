"""What each field of `headwater status --json` and of GET /status means; docs/status.md is this."""

SHARED_BY_TASK_AND_TABLE = {
    "state": "starting, running, retrying, paused, quarantined, stopped or done",
    "reason": "why it is in that state, in words; may be empty",
    "since_ms": "when the state began; null if unknown",
    "rows": "changes that went through since this process started",
    "bytes": "their encoded size in the log (source), or what the sink counts",
    "rows_per_s": "over the last 10 seconds",
    "bytes_per_s": "over the last 10 seconds",
    "lag_ms": (
        "the age of the oldest change that has not gone through; while all that is known has: how"
        " long the last one took from its commit at the source, and 0 once nothing has come for 10"
        " seconds; null before the first"
    ),
    "dead_letters": "records that went to the dead-letter topic since this process started",
}

TASK = SHARED_BY_TASK_AND_TABLE | {
    "retries": "how often it failed and was tried again since this process started",
    "lag_records": "of a sink: records of the log that it has not applied; null where not known",
    "positions": "applied offsets by `topic-partition`; of a source the parts of its position",
    "positions_ms": "when they were last reported",
    "gauges.*.value": "a figure of the source's own, such as `retained_wal_bytes`",
    "gauges.*.limit": "the limit of the figure; null if there is none",
    "remarks.*.problem": (
        "a problem of a running task, as `headwater doctor` reports it, or what the task waits for"
    ),
    "remarks.*.hint": "a command, SQL or an edit; empty where nothing need be done",
    "remarks.*.left_out": "tables that the file names and that are not captured because of it",
}

TABLE_IN_TASK = SHARED_BY_TASK_AND_TABLE | {
    "state": (
        "as its task's, or one of its own: quarantined, paused, re-reading (of a source), or"
        " rebuilding (of a sink)"
    ),
    "committed_ms": "commit time at the source of the newest change that went through",
    "moved_ms": "when that change went through",
}

SNAPSHOT = {
    "task": "`source`, or the sink that is being filled again by a replay or a rebuild",
    "is_done": "whether all of it has been read",
    "fraction": "from 0 to 1; null if unknown",
    "eta_ms": "how long it will take yet at the pace of the last 30 seconds; null when unknown",
    "rows": "rows read so far, those before a restart included",
    "rows_expected": "an estimate, as a rule; null when unknown",
    "bytes": "bytes read so far; null where the source does not count them",
    "bytes_expected": "null when unknown",
}

VERIFIED = {
    "at_ms": "when the command `verify`, or `verify:` of the file, compared it last",
    "is_equal": "whether all that was compared was equal",
    "differing": "keys that differed, over all sides",
    "rows": "rows of the log",
    "sides": "what was compared with the log: `source`, and sinks by their names",
    "problem": "why something could not be compared; empty where everything was",
}

TABLE = {
    "state": (
        "the worst of its tasks' states; `re-reading` until its rows have been read again, from"
        " which they may differ, `rebuilding` while a target's table is rebuilt, `left out` while"
        " a remark of the source says that the source does not capture it or cannot read all of"
        " its rows, `snapshotting`"
        " and `replaying` while it is being read, `streaming` when everything runs"
    ),
    "reason": "why it is in that state",
    "since_ms": "when the state began; null if unknown",
    "rows_per_s": "changes per second into the log; out of it where the source has no such table",
    "lag_ms": "the largest of its sinks' lags; the source's where there is no sink for it",
    "dead_letters": "records that went to the dead-letter topic since this process started",
    "dead_letter_problem": "what was wrong with the last of them",
    "snapshot": "how far the reading of existing rows has come; null where there was none",
    "verified": "what the last comparison found; null where there was none yet",
}
TABLE |= {f"snapshot.{name}": meaning for name, meaning in SNAPSHOT.items()}
TABLE |= {f"verified.{name}": meaning for name, meaning in VERIFIED.items()}

PIPELINE = {
    "state": (
        "the worst of its tasks' states: quarantined, retrying, starting, running, paused, done,"
        " stopped"
    ),
    "reason": "of that task",
    "since_ms": "of that task",
}

FIELDS = (
    {
        "version": "of this shape; raised when a field goes or changes its meaning",
        "at_ms": "when this was true; all times are milliseconds since 1970, in UTC",
        "started_ms": "when the process that answers was started",
        "is_stopping": "whether that process is stopping",
        "log_problem": "what the disk of the log refuses just now, or why no broker of its "
        "cluster can be reached; empty where nothing is wrong",
        "log_disk.free_bytes": "free space of the file system of the log; `log_disk` is null where "
        "another process has the log",
        "log_disk.size_bytes": "size of that file system",
        "offline_partitions": "partitions that the disk of the log keeps from being used, "
        "`topic-partition` to the reason; they are tried again at least every 30 seconds",
    }
    | {f"pipelines.*.{name}": meaning for name, meaning in PIPELINE.items()}
    | {f"pipelines.*.tasks.*.{name}": meaning for name, meaning in TASK.items()}
    | {f"pipelines.*.tables.*.{name}": meaning for name, meaning in TABLE.items()}
    | {f"pipelines.*.tables.*.tasks.*.{name}": text for name, text in TABLE_IN_TASK.items()}
)
"""A star stands for names: of pipelines, tasks, tables and figures (and parts of a position)."""

SHARED = {
    "members": "names of all runs that share the log",
    "pipelines.*.tasks.*.member": "the run that has the task; empty while no run has it",
}
"""Only where several machines can share a log."""
