"""A quiet stream is read at once, a busy one in gulps, and never for long."""

from headwater.connectors.postgres.wal.transport import (
    GATHER_SECONDS,
    PAUSE_SECONDS,
    ReadBatching,
)

STEP_SECONDS, BUSY_BYTES, QUIET_BYTES = 0.006, 1 << 20, 1 << 10


def test_a_quiet_stream_is_handed_on_at_once() -> None:
    pacing = ReadBatching(now=0.0)

    pauses = []
    for step in range(1, 20):
        pacing.note_bytes(QUIET_BYTES, now=step * STEP_SECONDS)
        pauses.append(pacing.pause(now=step * STEP_SECONDS))
        pacing.handed_on()

    assert set(pauses) == {0.0}


def test_a_busy_stream_is_left_alone_for_a_moment_and_then_handed_on() -> None:
    pacing, now = ReadBatching(now=0.0), STEP_SECONDS
    pacing.note_bytes(BUSY_BYTES, now=now)
    begun = now

    while pause := pacing.pause(now=now):
        assert pause == PAUSE_SECONDS
        now += pause
        pacing.note_bytes(BUSY_BYTES, now=now)

    assert GATHER_SECONDS <= now - begun <= GATHER_SECONDS + PAUSE_SECONDS


def test_a_stream_that_falls_quiet_is_read_at_once_again() -> None:
    pacing = ReadBatching(now=0.0)
    pacing.note_bytes(BUSY_BYTES, now=STEP_SECONDS)
    was_busy = pacing.pause(now=STEP_SECONDS) > 0
    pacing.handed_on()

    pacing.note_bytes(QUIET_BYTES, now=1.0)

    assert was_busy
    assert pacing.pause(now=1.0) == 0.0


def test_the_length_of_a_pause_is_the_lines_to_say() -> None:
    pacing = ReadBatching(now=0.0, pause_seconds=0.001)

    pacing.note_bytes(BUSY_BYTES, now=STEP_SECONDS)

    assert pacing.pause(now=STEP_SECONDS) == 0.001
