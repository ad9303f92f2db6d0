"""Runs Java programs against a broker: jars that others published, and sources of our own."""

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

JAVA = ("java", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
"""Small and soon warm: two cores are shared with the broker."""
CLIENT = ("kafka-clients", "slf4j-api", "lz4-java", "snappy-java", "zstd-jni")
RUN_S_MAX = 300


def directory_from(script: str, variable: str) -> Path:
    """What the script prints, or the test is skipped with its reason and its cure."""
    known = os.environ.get(variable)
    if known:
        return Path(known)
    fetched = subprocess.run([f"scripts/{script}"], capture_output=True, text=True, check=False)
    if fetched.returncode:
        pytest.skip(f"{fetched.stderr.strip()}; afterwards: {variable}=$(scripts/{script})")
    return Path(fetched.stdout.strip())


def client_jars() -> Path:
    """The Java client and Kafka Connect."""
    return directory_from("fetch_java_client.sh", "HEADWATER_JAVA_CLIENT_JARS")


def kafka_jars() -> Path:
    """Apache Kafka whole; from Maven Central, so only when asked for."""
    known = os.environ.get("HEADWATER_KAFKA_JARS")
    if not known:
        pytest.skip("Apache Kafka is not here: HEADWATER_KAFKA_JARS=$(scripts/fetch_kafka.sh)")
    return Path(known)


def class_path(jars: Path, names: Sequence[str]) -> str:
    """Only what is needed: two hundred jars take seconds to look through."""
    found = [max(jars.glob(f"{name}-[0-9]*.jar"), default=None) for name in names]
    assert None not in found, f"{jars} holds {', '.join(names)}"
    return os.pathsep.join(map(str, found))


def compile_sources(sources: Path, classes: Path, path: str) -> None:
    files = sorted(map(str, sources.glob("*.java")))
    command = ["javac", "-J-XX:TieredStopAtLevel=1", "-J-XX:+UseSerialGC", "-Xlint:all", "-Werror"]
    done = subprocess.run(
        [*command, "-cp", path, "-d", str(classes), *files],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def run_java(path: str, *arguments: str, options: Sequence[str] = ()) -> str:
    """What the program printed; it has to end well."""
    done = subprocess.run(
        [*JAVA, *options, "-cp", path, *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=RUN_S_MAX,
    )
    assert done.returncode == 0, f"{arguments[0]}: {done.stdout[-2000:]}{done.stderr[-3000:]}"
    return done.stdout
