"""Our authorizer and Kafka's own StandardAuthorizer answer the same random questions alike."""

import subprocess
from pathlib import Path
from random import Random

import pytest

from tests.compat.java_programs import JAVA, RUN_S_MAX, compile_sources, kafka_jars
from tests.core_log.security.questions import answers, random_world

pytestmark = [pytest.mark.kafka, pytest.mark.compat]

WORLDS = 2_000


def test_random_questions_are_answered_alike(tmp_path: Path) -> None:
    path = f"{kafka_jars()}/*"
    compile_sources(Path("tests/compat/java_authorizer"), tmp_path, path)
    seed = Random().randrange(1 << 32)
    random = Random(seed)
    lines = [line for _ in range(WORLDS) for line in random_world(random)]
    options = ["-Dorg.slf4j.simpleLogger.defaultLogLevel=off", "-Dstdout.encoding=UTF-8"]

    done = subprocess.run(
        [*JAVA, *options, "-cp", f"{tmp_path}:{path}", "Decisions"],
        input="\n".join(lines) + "\n",
        encoding="utf-8",
        capture_output=True,
        check=True,
        timeout=RUN_S_MAX,
    )

    different = [
        (theirs, ours)
        for theirs, ours in zip(done.stdout.splitlines(), answers(lines), strict=True)
        if theirs != ours
    ]
    assert not different, f"seed {seed}: {different[:5]}"
