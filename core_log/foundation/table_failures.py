"""An exception of the work on one table gets that table's name, so that it can fail alone."""

import traceback
from collections.abc import Iterator
from contextlib import contextmanager

from headwater.core_log.foundation.errors import HeadwaterError, TableFailed


@contextmanager
def failures_named(**facts: object) -> Iterator[None]:
    """`table` or `topic` among `facts` says whose work this is. Our own errors get what they do not
    have yet; an exception that nobody foresaw leaves as `TableFailed`, with it as its cause.
    """
    try:
        yield
    except HeadwaterError as error:
        error.facts = {**facts, **error.facts}
        raise
    except Exception as bug:
        raise failure_of(bug, **facts) from bug


def failure_of(bug: Exception, **facts: object) -> HeadwaterError:
    """The same for an exception that was caught already."""
    if isinstance(bug, HeadwaterError):
        return bug
    if isinstance(bug, OSError) and bug.strerror:
        return TableFailed(f"the system says: {bug.strerror.lower()}", hint="", **facts)
    return TableFailed(
        f"crashed by {place_of(bug)}", hint="its traceback is in the log of the process", **facts
    )


def place_of(bug: BaseException) -> str:
    """The exception's class and place, without its words: those may quote data."""
    bug = next(each for each in leaves_of(bug) if not isinstance(each, HeadwaterError))
    frames = traceback.extract_tb(bug.__traceback__)
    where = f" in {frames[-1].name}, line {frames[-1].lineno}" if frames else ""
    return f"{type(bug).__name__}{where}"


def leaves_of(failure: BaseException) -> Iterator[BaseException]:
    """The exceptions of a group, of its groups as well; else the one that was given."""
    if isinstance(failure, BaseExceptionGroup):
        for each in failure.exceptions:
            yield from leaves_of(each)
    else:
        yield failure
