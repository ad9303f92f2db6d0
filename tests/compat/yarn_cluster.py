"""Hadoop's own YARN on loopback, as one process; Spark's executors are containers of its nodes."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from scripts.owned_process import start_owned
from tests.compat.java_programs import compile_sources, directory_from

SOURCES = Path("tests/compat/java_yarn")
JAVA = ("java", "-Xmx384m", "-XX:+UseSerialGC", "--add-opens=java.base/java.lang=ALL-UNNAMED")
"""Its web pages look into Java's own classes."""
LOG = """\
log4j.rootLogger=WARN, said
log4j.appender.said=org.apache.log4j.ConsoleAppender
log4j.appender.said.target=System.err
log4j.appender.said.layout=org.apache.log4j.PatternLayout
log4j.appender.said.layout.ConversionPattern=%p %c{1}: %m%n
"""
STOP_S_MAX = 120


@contextmanager
def yarn_cluster(place: Path, *, nodes: int) -> Iterator[Path]:
    """The directory of its configuration, for `HADOOP_CONF_DIR`; what containers say stays in
    `place`."""
    path = f"{directory_from('fetch_yarn.sh', 'HEADWATER_YARN_JARS')}/*"
    classes, settings, log = place / "classes", place / "conf", place / "log4j.properties"
    settings.mkdir(parents=True)
    log.write_text(LOG)
    compile_sources(SOURCES, classes, path)
    with (place / "said").open("wb") as said:
        process = start_owned(
            [*JAVA, f"-Dlog4j.configuration=file:{log}", "-cp", f"{classes}:{path}", "YarnCluster",
             settings / "yarn-site.xml", nodes],
            cwd=place,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=said,
        )  # fmt: skip
    assert process.stdin is not None and process.stdout is not None, "they are pipes"
    try:
        if process.stdout.readline() != b"ready\n":
            raise AssertionError((place / "said").read_text()[-4_000:])
        yield settings
    finally:
        process.stdin.close()
        process.wait(STOP_S_MAX)
        process.stdout.close()
