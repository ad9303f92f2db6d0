"""Adds a table's name to exceptions of the work on it, so that only this table fails."""

import traceback
from collections.abc import Iterator
from contextlib import contextmanager

from headwater.core_log.foundation.errors import HeadwaterError, TableFailed


@contextmanager
def failures_named(**facts: object) -> Iterator[None]:
    """Context manager: adds `facts` (with `table` or `topic`) to errors. Our own errors get the
    facts they lack; an unexpected exception is raised as `TableFailed` with itself as the cause."""
    try:
        yield
    except HeadwaterError as error:
        error.facts = {**facts, **error.facts}
        raise
    except Exception as bug:
        raise failure_of(bug, **facts) from bug


def failure_of(bug: Exception, **facts: object) -> HeadwaterError:
    """Returns the error for an exception that was already caught, as `failures_named` would raise
    it."""
    if isinstance(bug, HeadwaterError):
        return bug
    if isinstance(bug, OSError) and bug.strerror:
        return TableFailed(f"the system says: {bug.strerror.lower()}", hint="", **facts)
    return TableFailed(
        f"crashed by {place_of(bug)}", hint="its traceback is in the log of the process", **facts
    )


def place_of(bug: BaseException) -> str:
    """Returns the exception's class and place, without its message: that may quote data."""
    bug = next(each for each in leaves_of(bug) if not isinstance(each, HeadwaterError))
    frames = traceback.extract_tb(bug.__traceback__)
    where = f" in {frames[-1].name}, line {frames[-1].lineno}" if frames else ""
    return f"{type(bug).__name__}{where}"


def leaves_of(failure: BaseException) -> Iterator[BaseException]:
    """Returns the exceptions of a group and its nested groups, or the exception itself."""
    if isinstance(failure, BaseExceptionGroup):
        for each in failure.exceptions:
            yield from leaves_of(each)
    else:
        yield failure
