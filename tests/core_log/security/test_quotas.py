"""The most specific quota holds for a client, and rates are measured as by Kafka."""

from random import Random

import pytest

from headwater.core_log.security.quotas import (
    DEFAULT,
    InvalidQuota,
    Meter,
    QuotaEntity,
    QuotaTable,
    SampledRate,
    TokenBucket,
    entity_of,
    normal_address,
)
from tests.core_log.security.quota_use import answers, random_use

ORDER = (
    QuotaEntity("alice", "app"),
    QuotaEntity("alice", DEFAULT),
    QuotaEntity("alice"),
    QuotaEntity(DEFAULT, "app"),
    QuotaEntity(DEFAULT, DEFAULT),
    QuotaEntity(DEFAULT),
    QuotaEntity(None, "app"),
    QuotaEntity(None, DEFAULT),
)
"""The strongest first, as Kafka's documentation has them."""


@pytest.mark.parametrize("place", range(len(ORDER)))
def test_the_most_specific_quota_holds(place: int) -> None:
    limits = {entity: float(nth) for nth, entity in enumerate(ORDER, 1)}
    table = QuotaTable({entity: limits[entity] for entity in ORDER[place:]})

    found = table.find("alice", "app")

    assert found is not None and found[1] == limits[ORDER[place]]


def test_a_quota_of_a_user_is_shared_by_its_clients_and_a_default_one_is_not() -> None:
    shared = QuotaTable({QuotaEntity("alice"): 1.0})
    own = QuotaTable({QuotaEntity("alice", DEFAULT): 1.0})

    assert shared.find("alice", "a") == shared.find("alice", "b") == (Meter("alice", None), 1.0)
    assert own.find("alice", "a") == (Meter("alice", "a"), 1.0)
    assert own.find("alice", "b") == (Meter("alice", "b"), 1.0)


def test_a_client_without_an_id_has_the_quotas_of_its_user_only() -> None:
    everything = QuotaTable(dict.fromkeys(ORDER, 1.0))
    without_users = QuotaTable({QuotaEntity(None, DEFAULT): 1.0})

    assert everything.find("alice", "") == (Meter("alice", None), 1.0)
    assert without_users.find("alice", "") is None


def test_a_burst_of_ten_seconds_is_free_and_more_must_wait() -> None:
    rate = SampledRate()

    rate.record(1_000, 0)
    assert rate.wait_ms(100.0, 0) == 0
    rate.record(50, 0)
    assert rate.wait_ms(100.0, 0) == 500


def test_a_simple_rate_leaves_room_for_one_second_at_first_and_for_all_that_passed_later() -> None:
    rate = SampledRate(is_simple=True)

    rate.record(40, 0)
    at_once = rate.room(100.0, 0)
    rate.record(400, 0)

    assert at_once == 60
    assert [rate.room(100.0, now_ms) for now_ms in (0, 4_000, 5_000)] == [0, 0, 60]
    assert rate.wait_ms(100.0, 3_000) == 1_400


def test_a_rate_that_was_left_unused_is_not_used_at_once() -> None:
    """Neither after a pause nor when much that was used is forgotten."""
    rate = SampledRate(is_simple=True)
    rate.record(1_000, 0)
    rate.record(1, 8_000)
    rooms = [rate.room(100.0, 11_000)]

    for now_ms in (11_000, 11_999, 12_000):
        rate.record(rate.room(100.0, now_ms), now_ms)
        rooms.append(rate.room(100.0, now_ms))

    assert rooms == [100, 0, 0, 0]
    assert rate.total(12_000) == 201


def test_use_is_forgotten_after_eleven_seconds() -> None:
    rate = SampledRate()
    rate.record(10_000, 0)

    assert rate.total(10_999) == 10_000
    assert rate.total(11_000) == 0
    assert rate.is_idle(11_000)


def test_owed_tokens_are_refilled_at_the_rate() -> None:
    bucket = TokenBucket(2.0, 0)

    bucket.take(32, 2.0, 0)

    assert [bucket.wait_ms(2.0, now_ms) for now_ms in (0, 4_000, 5_000)] == [5_000, 1_000, 0]


def test_random_use_never_waits_without_a_quota() -> None:
    random = Random(19)
    lines = [line for _ in range(50) for line in random_use(random)]
    lines = [line for line in lines if not line.startswith(("limit", "copy"))]

    assert set(answers(lines)) == {"new", "0", "true 0"}


def test_addresses_have_one_form() -> None:
    forms = ("::1", "0:0:0:0:0:0:0:1", "::ffff:10.0.0.1", "10.0.0.1", "fe80::1%eth0")

    assert [normal_address(each) for each in forms] == [
        "::1",
        "::1",
        "10.0.0.1",
        "10.0.0.1",
        "fe80::1",
    ]
    with pytest.raises(InvalidQuota, match="not a valid IP"):
        entity_of([("ip", "host.example")])
