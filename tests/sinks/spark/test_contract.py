"""The Spark sink keeps the promises of every sink, in this process and on Spark."""

from itertools import count
from pathlib import Path

import pytest

from headwater.core_log.foundation.errors import PositionLost
from headwater.core_log.objects.settings import S3Settings
from tests.budget import IS_LONG
from tests.contract.sink_suite import ORDERS, SinkContract
from tests.moto_server import client_of
from tests.sinks.spark.scripted_spark import ScriptedLog, SparkBench, SparkSinkOfScripts
from tests.sinks.spark.targets import LakeBench
from tests.slices import ScriptedTopic

_numbers = count(1)
ALWAYS_BY_SPARK = {
    "test_one_of_two_interleaved_sinks_is_fenced_and_nothing_doubles",
    "test_keys_that_change_places_keep_their_rows",
    "test_a_slice_whose_deletes_age_out_while_executors_read_is_not_applied",
}


class TestDeltaInADirectory(SinkContract):
    @pytest.fixture
    def bench(self, tmp_path: Path) -> LakeBench:
        return LakeBench(str(tmp_path / "lake"))


class TestDeltaInABucket(SinkContract):
    @pytest.fixture
    def bench(self, s3: S3Settings) -> LakeBench:
        bucket = f"lake-{next(_numbers)}"
        client_of(s3).create_bucket(Bucket=bucket)
        return LakeBench(f"s3://{bucket}/shop", s3)


class TestIcebergInADirectory(SinkContract):
    @pytest.fixture
    def bench(self, tmp_path: Path) -> LakeBench:
        return LakeBench(str(tmp_path / "lake"), chosen={"format": "iceberg"})


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
class TestDeltaBySpark(SinkContract):
    """The same when every slice is large: all of it in `make compat`, some of it always."""

    @pytest.fixture
    def bench(self, tmp_path: Path, request: pytest.FixtureRequest) -> SparkBench:
        if not IS_LONG and request.node.name not in ALWAYS_BY_SPARK:
            pytest.skip("make compat has the time")
        return SparkBench(LakeBench(str(tmp_path / "lake")))

    async def test_a_slice_whose_deletes_age_out_while_executors_read_is_not_applied(
        self, bench: SparkBench
    ) -> None:
        """Compaction comes before the tasks that have not come to its deletes yet."""
        topic, sink = ScriptedTopic(), bench.sink()
        topic.append(ORDERS, *[("c", {"id": key, "note": "a"}) for key in range(9)])
        await sink.committed_offsets([topic.name])
        await sink.apply(topic.slice())
        topic.append(ORDERS, *[("d", {"id": key}) for key in range(9)])
        compacted = SparkSinkOfScripts(sink.inner, ScriptedLog([0, 15]))

        with pytest.raises(PositionLost) as caught:
            await compacted.apply(topic.slice())

        assert "removed deletes before" in caught.value.problem
        assert len(await bench.rows("public.orders")) == 9
