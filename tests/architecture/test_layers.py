"""Imports only point down, and what is heavy or touches the world stays in its room."""

import ast
import re
import subprocess
import sys
from pathlib import Path

from tests.architecture.sources import (
    PRODUCT,
    ROOT,
    imports_of,
    module_of,
    nodes_of,
    python_files,
    text_of,
)

MAY_IMPORT = {
    "core_log": set[str](),
    "connectors": {"core_log"},
    "sinks": {"core_log"},
    "config": {"core_log"},
    "pipelines": {"core_log", "connectors", "sinks", "config"},
}
"""Package to packages: the three floors."""

ROOMS_MAY_IMPORT = {
    "foundation": set[str](),
    "vocabulary": {"foundation"},
    "protocol": {"foundation"},
    "storage": {"foundation", "vocabulary"},
    "objects": {"foundation", "storage"},
    "groups": {"foundation", "vocabulary", "protocol", "storage"},
    "replication": {"foundation", "vocabulary", "protocol", "security", "storage"},
    "links": {"foundation", "protocol", "security"},
    "security": {"foundation", "protocol"},
    "broker": {
        "foundation",
        "vocabulary",
        "protocol",
        "links",
        "security",
        "storage",
        "groups",
        "replication",
    },
    "client": {"foundation", "vocabulary", "protocol", "links", "security"},
    "embedded": {"foundation", "links", "security", "broker", "client"},
}
"""The same inside core_log. Vocabulary is what is not named here: model, records, compiled
and rows."""

CONFINED = {
    r"yaml": r"config/",
    r"pydantic": r"(.*/)?settings\.py|core_log/foundation/schedule\.py|config/.*|pipelines/.*",
    r"click|rich|starlette|uvicorn|prometheus_client": r"pipelines/",
    r"socket": (
        r"core_log/(broker/(server|connection)|foundation/tcp_keepalive|links/(connection|tls))\.py"
        r"|connectors/postgres/(wal/transport|snapshot/copy)\.py|pipelines/.*"
    ),
    r"numba|llvmlite": r"core_log/compiled/(object_cache|compiler|row_writer_kernels)\.py",
    r"fcntl|mmap|shutil|tempfile|glob": (
        r"core_log/storage/files\.py|pipelines/.*|sinks/.*|connectors/sql/spool\.py"
        r"|connectors/mysql/events/held_rows\.py"
    ),
    r"time": r"core_log/foundation/clock\.py|config/.*|pipelines/.*",
    r"secrets": (
        r"core_log/(broker/lifecycle|client/access_admin|links/sasl|storage/key_digests)\.py"
        r"|pipelines/.*"
    ),
    r"boto3|botocore": r"core_log/objects/bucket\.py",
    r"psycopg": r"connectors/postgres/|sinks/sql/dialects/postgresql\.py",
    r"pyspark|py4j|deltalake|pyiceberg": r"sinks/spark/|pipelines/spark_source/",
    r"duckdb": r"core_log/rows/|pipelines/transforms/",
    r"opentelemetry": r"pipelines/watching/otlp_export\.py",
    r"openlineage": r"pipelines/lineage/",
    r"confluent_kafka|kafka|aiokafka|hypothesis|pytest": r"$",
}
"""Module, third-party or of the world, to the paths (from their beginning) that may import it."""

HEAVY = (
    "pyarrow",
    "numpy",
    "pandas",
    "duckdb",
    "numba",
    "sqlalchemy",
    "pyspark",
    "deltalake",
    "opentelemetry",
    "openlineage",
    "rich",
    "yaml",
)
"""What the broker's process never loads."""

FILE_CALLS = {"open", "os.open", "os.write", "os.pread", "os.fsync", "os.fdatasync"}
PATH_METHODS = {"read_text", "write_text", "read_bytes", "write_bytes", "mkdir", "unlink", "touch"}

PATHS, LOG_PATHS = python_files(*PRODUCT), python_files("core_log")


def test_imports_only_point_down() -> None:
    strays = {
        path: upward
        for path in PATHS
        if (upward := packages_imported_by(path) - MAY_IMPORT[path.split("/")[0]])
    }

    assert not strays


def packages_imported_by(path: str) -> set[str]:
    names = [name.split(".") for name in imports_of(path) if name.startswith("headwater.")]
    return {parts[1] for parts in names} & set(PRODUCT) - {path.split("/")[0]}


def test_the_loops_know_nothing_of_what_is_proved_about_them() -> None:
    upward = [
        path
        for path in python_files("pipelines/loops")
        if any(name.startswith("headwater.pipelines.time_travel") for name in imports_of(path))
    ]

    assert not upward


def test_inside_the_log_imports_point_down_as_well() -> None:
    strays = {
        path: upward
        for path in LOG_PATHS
        if (upward := rooms_imported_by(path) - ROOMS_MAY_IMPORT[room_of(module_of(path))])
    }

    assert not strays


def rooms_imported_by(path: str) -> set[str]:
    names = {name for name in imports_of(path) if name.startswith("headwater.core_log.")}
    return {room_of(name) for name in names} - {room_of(module_of(path))}


def room_of(module: str) -> str:
    parts = module.split(".")
    return parts[2] if parts[2:] and parts[2] in ROOMS_MAY_IMPORT else "vocabulary"


def test_the_world_and_other_peoples_packages_stay_in_their_room() -> None:
    strays = [
        (path, name)
        for path in PATHS
        for name in {name.split(".")[0] for name in imports_of(path)}
        for module, rooms in CONFINED.items()
        if re.fullmatch(module, name) and not re.match(rooms, path)
    ]

    assert not strays


def test_the_log_touches_files_in_one_module() -> None:
    """So that a test can put files in memory, and make them fail. Code that is kept is no file of
    the log's: it lies beside Python's own."""
    its_own = {"core_log/storage/files.py", "core_log/compiled/object_cache.py"}
    strays = [
        f"{path}:{node.lineno}"
        for path in LOG_PATHS
        for node in nodes_of(path)
        if path not in its_own and isinstance(node, ast.Call) and opens(node)
    ]

    assert not strays


def opens(call: ast.Call) -> bool:
    name = ast.unparse(call.func)
    return name in FILE_CALLS or name.split(".")[-1] in PATH_METHODS


def test_the_log_draws_no_time_and_no_chance_of_its_own() -> None:
    """Clocks and randomness are arguments, so that a history can be run again."""
    drawn = {
        path: found
        for path in LOG_PATHS
        if (
            found := re.findall(
                r"datetime\.now|\buuid4\(|(?<!np\.)\brandom\.(?:random|randint|choice)\(",
                text_of(path),
            )
        )
    }

    assert not drawn


def test_the_broker_loads_nothing_heavy() -> None:
    """Nor what only clients and pipelines need: who starts it waits for all of it."""
    unneeded = (*HEAVY, "headwater.core_log.client", "headwater.pipelines.file.loader")
    program = (
        "import sys, headwater.core_log.broker.lifecycle, headwater.core_log.broker.dispatch\n"
        "import headwater.pipelines.cli, headwater.pipelines.commands.broker\n"
        "headwater.core_log.broker.dispatch.load_handlers()\n"
        f"print(*sorted(set({unneeded!r}) & sys.modules.keys()))"
    )

    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False
    )

    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "", "")


def test_a_command_that_looks_at_the_log_loads_nothing_that_only_others_need(
    tmp_path: Path,
) -> None:
    """Whoever typed it waits for all of it."""
    file = tmp_path / "pipeline.yaml"
    file.write_text("pipeline: shop\nlog: {type: kafka, bootstrap: 'kafka:9092'}\n")
    unneeded = {
        "headwater.core_log.client.group_admin",
        "headwater.core_log.client.topic_admin",
        "headwater.core_log.client.writer",
        "headwater.pipelines.file.loader",
        "headwater.pipelines.file.spec",
    }
    program = (
        "import pathlib, sys, headwater.core_log.client\n"
        "import headwater.pipelines.terminal.log_place as log_place\n"
        f"place = log_place.place_in(pathlib.Path({str(file)!r}))\n"
        f"print(*place.bootstrap, *sorted({unneeded!r} & sys.modules.keys()))"
    )

    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False
    )

    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "kafka:9092", "")


def test_the_owner_of_a_run_loads_nothing_heavy_either(tmp_path: Path) -> None:
    """Its workers do: what it loads itself, every run waits for, and keeps in memory twice."""
    file = tmp_path / "pipeline.yaml"
    file.write_text(
        "pipeline: shop\nsource: {type: files, path: rows.csv}\nsink: {type: sql, url: 'sqlite://'}"
    )
    program = (
        "import os, pathlib, headwater.pipelines.running.run, sys, headwater.core_log.embedded\n"
        "from headwater.pipelines.file.loader import load\n"
        f"load(pathlib.Path({str(file)!r}), environment=os.environ)\n"
        f"print(*sorted(set({HEAVY!r}) - {{'yaml'}} & sys.modules.keys()))"
    )

    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False
    )

    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "", "")
