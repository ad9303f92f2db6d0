"""A commit of a table counts once, though whoever made it did not hear that it did."""

from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ReadTimeoutError
from botocore.httpsession import URLLib3Session

from headwater.core_log.objects.directory import DirectoryStore
from headwater.core_log.objects.settings import S3Settings
from tests.contract.sink_suite import ORDERS, by_id
from tests.moto_server import client_of
from tests.sinks.spark.orders import applied, bench_of, many
from tests.sinks.spark.targets import LakeBench
from tests.slices import ScriptedTopic


async def test_a_commit_of_a_lake_whose_answer_got_lost_counts_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """boto3 repeats a PUT whose answer got lost; the repetition hears 412, `create` says False."""
    bench, topic = bench_of(tmp_path), ScriptedTopic()
    topic.append(ORDERS, *many(0, 3))
    await applied(bench, topic)
    sink = bench.sink()
    await sink.committed_offsets([topic.name])
    topic.append(ORDERS, *many(3, 3))
    part = topic.slice()
    whole = DirectoryStore.create

    def create(self: DirectoryStore, name: str, content: bytes) -> bool:
        return whole(self, name, content) and "_delta_log" not in name

    monkeypatch.setattr(DirectoryStore, "create", create)

    await sink.apply(part)

    assert [row["id"] for row in by_id(await bench.rows("public.orders"))] == [*range(6)]


async def test_a_commit_in_a_bucket_whose_answer_got_lost_counts_once(
    s3: S3Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    client_of(s3).create_bucket(Bucket="lost-answers")
    bench, topic = LakeBench("s3://lost-answers/lake", s3), ScriptedTopic()
    topic.append(ORDERS, *many(0, 3))
    sink = bench.sink()
    await sink.committed_offsets([topic.name])
    await sink.apply(topic.slice())
    topic.append(ORDERS, *many(3, 3))
    send, lost = URLLib3Session.send, list[str]()

    def losing(self: URLLib3Session, request: Any) -> Any:
        answer = send(self, request)
        if request.method == "PUT" and "_delta_log" in request.url and not lost:
            lost.append(request.url)
            raise ReadTimeoutError(endpoint_url=request.url)
        return answer

    monkeypatch.setattr(URLLib3Session, "send", losing)

    await sink.apply(topic.slice())

    assert lost
    assert [row["id"] for row in by_id(await bench.rows("public.orders"))] == [*range(6)]
