"""Work that takes too long is interrupted, whatever went before it; other work never is."""

import threading
import time

import pytest

from headwater.pipelines.transforms.expressions import TimeLimit

pytestmark = pytest.mark.slow

MS_MAX = 400


@pytest.mark.slow
def test_quick_work_is_not_interrupted_for_earlier_work() -> None:
    """Each has a time that no process stands still for, and all of them together take longer."""
    interrupted = threading.Event()
    limit = TimeLimit(4 * MS_MAX, interrupted.set)

    for _ in range(17):
        with limit.watch():
            time.sleep(MS_MAX / 4_000)

    assert not interrupted.is_set()


def test_work_that_takes_too_long_is_interrupted_soon() -> None:
    interrupted = threading.Event()
    limit = TimeLimit(MS_MAX, interrupted.set)

    begun = time.monotonic()
    with limit.watch():
        assert interrupted.wait(10)
    assert time.monotonic() - begun >= MS_MAX / 1_000


def test_work_after_an_interruption_has_its_whole_time() -> None:
    interrupted = threading.Event()
    limit = TimeLimit(MS_MAX, interrupted.set)

    for _ in range(2):
        begun = time.monotonic()
        with limit.watch():
            assert interrupted.wait(10)
        assert time.monotonic() - begun >= MS_MAX / 1_000
        interrupted.clear()


def test_one_thread_watches_all_that_comes_soon_and_goes_when_nothing_does() -> None:
    limit = TimeLimit(MS_MAX, lambda: None)
    before = set(threading.enumerate())

    for _ in range(100):
        with limit.watch():
            pass
    [thread] = set(threading.enumerate()) - before
    thread.join(10)

    assert not thread.is_alive()
