"""What a pipeline file says by reference is found, missed, handed on, and never told."""

import pytest

from headwater.config.mistakes import MistakesFound
from headwater.pipelines.file.loader import CheckedFile, LoadedPipeline, check, load
from tests.pipelines.pipeline_files import CANARY, FURTHER_KEYS, SMALLEST, Write, mistakes, one


def test_an_unset_variable_is_reported_once_and_hides_nothing_else(write: Write) -> None:
    text = (
        SMALLEST.replace("postgresql://h/shop", "${env:URL}") + "workers: ${env:N}\nlog: {a: 1}\n"
    )

    told = mistakes(write(text))

    assert told == [
        "pipeline.yaml:4:8: the environment has no URL - export URL=...",
        "pipeline.yaml:8:10: the environment has no N - export N=...",
        "pipeline.yaml:9:7: key 'a' is unknown - " + told[2].rpartition(" - ")[2],
    ]


def test_a_file_can_be_checked_where_its_secrets_are_not(write: Write) -> None:
    path = write(SMALLEST.replace("postgresql://h/shop", "${env:URL}"))

    found: CheckedFile = check(path, environment={}, may_be_unset=True)

    assert [str(each.text_position) for each in found.unset] == ["TextPosition(line=4, column=8)"]
    assert (found.names, found.pipelines) == (("shop",), ())


@pytest.mark.parametrize(
    "text",
    [
        SMALLEST.replace("url: postgresql://h/shop", "${env:C}: 1") + "workers: ${env:C}\n",
        SMALLEST.replace("type: made-up", "type: ${env:C}", 1),
        SMALLEST + "log: {value: '${env:C}', partitions: '${env:C}', listen: 'x${env:C}'}\n",
        SMALLEST + "log: {history: '${env:C}', topic: '${env:C}', registry: '${env:C}'}\n",
        SMALLEST + "transform: [{table: '/(${env:C}/', mask: {a: '${env:C}'}}]\n",
        SMALLEST + "errors: {retry: {backoff: '${env:C}'}, isolate: '${env:C}'}\n",
        SMALLEST.replace("shop\n", "'${env:C}'\n", 1),
        SMALLEST.replace("postgresql://h/shop", "a://u:${env:C}@h\n  slot: {name: '${env:C}'}"),
    ],
)
def test_a_secret_is_never_told(write: Write, text: str) -> None:
    with pytest.raises(MistakesFound) as found:
        load(write(text), environment={"C": CANARY})

    told = f"{found.value}{found.value!r}{found.value.facts}{found.value.__cause__!r}"
    assert "canary" not in told


def test_a_loaded_pipeline_does_not_tell_its_secrets_but_knows_them(write: Write) -> None:
    text = SMALLEST.replace("postgresql://h/shop", "postgresql://u:${env:C}@h/shop")

    pipeline = one(
        write(text.replace("shop\n", "{name: shop, salt: salty-canary-7f3a}\n", 1)), {"C": CANARY}
    )

    assert "canary" not in repr(pipeline)
    assert "canary" not in pipeline.redaction.scrub(f"{CANARY} {CANARY!r} and salty-canary-7f3a")


def test_a_password_written_into_the_file_is_a_secret_as_well(write: Write) -> None:
    pipeline = one(write(SMALLEST.replace("//h/", "//u:canary-pass@h/")))

    assert "canary" not in pipeline.redaction.scrub("wrong password canary-pass for u")


def test_a_pipeline_goes_through_a_pipe_and_stays_what_it_was(write: Write) -> None:
    text = SMALLEST.replace("postgresql://h/shop", "${env:C}\n  snapshot.mode: never")
    pipeline = one(write(text + FURTHER_KEYS), {"C": CANARY})

    again = LoadedPipeline.from_wire(pipeline.to_wire())

    assert again == pipeline
    assert "canary" not in again.redaction.scrub(CANARY)
