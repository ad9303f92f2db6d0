"""A table of files whose form must not enter the log is held alone, and read whole once it may."""

from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from headwater.connectors.files.settings import FilesSettings
from headwater.connectors.files.source import FilesSource
from headwater.connectors.left_out_tables import REFUSED
from headwater.connectors.source import Remark, SnapshotProgress, SourceContext, SourceReport
from headwater.core_log.foundation.errors import ConfigError
from headwater.core_log.model.table_schema import TableSchema
from tests.fakes import SimulatedClock


@dataclass
class Log:
    """What a source handed on, and where it stands."""

    directory: Path
    hidden: set[str] = field(default_factory=set)
    """Columns that keep a table out."""
    batch_bytes: str = "64MiB"
    positions: dict[str, str] = field(default_factory=dict)
    ids: dict[str, list[int]] = field(default_factory=dict)
    told: list[SourceReport] = field(default_factory=list)

    async def refusal(self, schema: TableSchema, *, is_next: bool = False) -> ConfigError | None:
        assert is_next
        return ConfigError("a rule hides it") if self.hidden & {*schema.names} else None

    async def read(self) -> None:
        settings = FilesSettings.model_validate(
            {"path": "./*", "table": "{stem}", "batch_bytes": self.batch_bytes, "settle": "0s"}
        )
        context = SourceContext(
            "shop",
            self.directory,
            SimulatedClock(),
            self.told.append,
            until_end=True,
            refusal=self.refusal,
        )
        async with aclosing(FilesSource(settings, context).changes(self.positions)) as batches:
            async for batch in batches:
                self.positions = {**self.positions, **batch.positions}
                for each in batch.tables:
                    found = self.ids.setdefault(each.schema.table.name, [])
                    found += each.rows.column("id").to_pylist()

    def remarks(self) -> list[Sequence[str]]:
        found = [each for each in self.told if isinstance(each, Remark) and each.name == REFUSED]
        return [each.finding.left_out if each.finding else () for each in found]


def write(path: Path, ids: Sequence[int], more: str = "") -> None:
    with path.open("a") as file:
        file.writelines(f'{{"id":{id},"mail":"m{id}"{more}}}\n' for id in ids)


@pytest.mark.slow
@pytest.mark.parametrize("batch_bytes", ["1KiB", "2MiB"])
async def test_a_form_that_must_not_enter_the_log_holds_its_table_alone(
    tmp_path: Path, batch_bytes: str
) -> None:
    """From the first batch that has it on; none of its rows is lost or comes twice."""
    for name in "abc":
        write(tmp_path / f"{name}.jsonl", range(1_000))
    write(tmp_path / "b.jsonl", range(1_000, 1_500), ',"secret":"x"')
    log = Log(tmp_path, {"secret"}, batch_bytes)

    await log.read()
    before = len(log.ids.get("b", ()))
    write(tmp_path / "b.jsonl", range(1_500, 1_600))
    write(tmp_path / "a.jsonl", range(1_000, 1_100))
    await log.read()
    held = {name: len(ids) for name, ids in log.ids.items()}
    log.hidden.clear()
    await log.read()

    assert before <= 1_000 and bool(before) == (batch_bytes == "1KiB")
    assert held == {"a": 1_100, "c": 1_000} | ({"b": before} if before else {})
    assert log.ids["a"] == [*range(1_100)] and log.ids["b"] == [*range(1_600)]
    assert log.remarks() == [("b",), ("b",)]
    assert [each.rows for each in log.told if isinstance(each, SnapshotProgress) and each.is_done]


async def test_a_table_that_may_enter_again_is_no_longer_named(tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl", [1])
    write(tmp_path / "b.jsonl", [1], ',"secret":"x"')
    log = Log(tmp_path, {"secret"})
    asked = 0

    async def refusal(schema: TableSchema, *, is_next: bool = False) -> ConfigError | None:
        nonlocal asked
        asked += schema.table.name == "b"
        return await Log.refusal(log, schema, is_next=is_next) if asked == 1 else None

    log.refusal = refusal  # type: ignore[method-assign]
    await log.read()

    assert log.ids == {"a": [1], "b": [1]}
    assert log.remarks() == [("b",), ()]


async def test_a_source_of_which_every_table_is_held_stops(tmp_path: Path) -> None:
    for name in "ab":
        write(tmp_path / f"{name}.jsonl", [1], ',"secret":"x"')
    log = Log(tmp_path, {"secret"})

    with pytest.raises(ConfigError, match="a rule hides it"):
        await log.read()

    assert log.ids == {} and log.remarks()[-1] == ("a", "b")
