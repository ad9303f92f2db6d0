"""A broker lives as long as its controller hears of it, and a controller that slept hears anew."""

from headwater.core_log.replication.liveness import SESSION_MS, Liveness


def test_a_session_ends_when_nothing_was_heard_for_its_length() -> None:
    liveness = Liveness([1, 2], now_ms=0)
    for now_ms in range(0, SESSION_MS, 500):
        liveness.look(now_ms)
        liveness.on_heartbeat(1, now_ms)

    liveness.look(SESSION_MS)

    assert liveness.list_expired(SESSION_MS) == [2]
    assert liveness.is_live(1, SESSION_MS) and not liveness.is_live(2, SESSION_MS)
    assert liveness.list_expired(SESSION_MS - 1) == []


def test_a_broker_is_silent_before_its_session_ends() -> None:
    liveness = Liveness([1, 2], now_ms=0)
    liveness.on_heartbeat(1, 600)

    assert liveness.list_silent(999) == []
    assert liveness.list_silent(1_000) == [2]
    assert liveness.list_silent(SESSION_MS) == [1]


def test_a_controller_that_stood_still_judges_nobody_by_that_time() -> None:
    liveness = Liveness([1, 2], now_ms=0)
    liveness.look(100)

    liveness.look(100 + 10 * SESSION_MS)

    assert liveness.list_expired(100 + 10 * SESSION_MS) == []
    assert liveness.list_expired(100 + 11 * SESSION_MS) == [1, 2]


def test_a_broker_that_is_gone_has_no_session() -> None:
    liveness = Liveness([1], now_ms=0)

    liveness.on_gone(1)

    assert liveness.list_expired(SESSION_MS) == [] and not liveness.is_live(1, 0)
