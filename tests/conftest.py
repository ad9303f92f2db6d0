"""What holds for every test: how much Hypothesis tries, where files lie, where Apache Kafka is
needed, and which tests `pytest -n 2` leaves to one of its processes."""

import gc
import os
import shutil
import sys
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, settings

from tests.architecture.sources import PRODUCT
from tests.budget import BUDGET, IS_LONG, MARK_OF_TARGET

if TYPE_CHECKING:
    from xdist.remote import Producer
    from xdist.scheduler import LoadScopeScheduling

    from headwater.core_log.objects.settings import S3Settings
    from tests.databases import Guest

settings.register_profile(
    "short", deadline=None, max_examples=30, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("unit", settings.get_profile("short"), max_examples=10)
settings.register_profile("long", settings.get_profile("short"), max_examples=2_000)
settings.load_profile(BUDGET)

MEMORY, MEMORY_BYTES_MIN = Path("/dev/shm"), 6 << 30
"""Where files of a short run lie, if there is room: on a disk that really syncs, a log with one
write takes five times as long. Long budgets stay on the disk."""
if (
    not IS_LONG
    and "TMPDIR" not in os.environ
    and MEMORY.is_dir()
    and shutil.disk_usage(MEMORY).free >= MEMORY_BYTES_MIN
):
    os.environ["TMPDIR"] = tempfile.tempdir = str(MEMORY)

os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
"""No Java lives long enough here for its better compiler to be worth its while."""

TOGETHER = {
    "crash": ("tests/crash/",),
    "architecture": ("tests/architecture/",),
    "spark": (
        "tests/pipelines/spark_source/",
        "tests/sinks/spark/test_contract.py",
        "tests/sinks/spark/test_driver_plan.py",
        "tests/sinks/spark/test_job_group.py",
        "tests/sinks/spark/test_lake_pipeline.py",
    ),
}
"""One process does all of each: the first keep several processes of their own busy, the second
parse every file once, the third share a Spark that takes long to start."""


SERVICES = {"apache_kafka", "mariadb", "mysql_server", "postgres", "s3", "spark"}
"""Fixtures that start a server or a Spark."""
SERVED_KINDS = {"bucket", "mariadb", "mysql-9", "postgres", "postgresql"}
"""Parameters by which other fixtures choose one of them."""


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, Any, Any]:
    """Nothing of ten thousand tests is garbage before they end: no collection looks at them."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_itemcollected(item: pytest.Item) -> None:
    """`make unit` leaves out what needs another server, without a mark at each test; what is long
    waits for its target."""
    assert isinstance(item, pytest.Function)
    chosen = item.callspec.params.values() if hasattr(item, "callspec") else ()
    kinds = {each for each in chosen if isinstance(each, str)}
    if SERVICES & {*item.fixturenames} or SERVED_KINDS & kinds:
        item.add_marker("integration")
    if (long := item.get_closest_marker("long")) is not None:
        (target,) = long.args
        item.add_marker(MARK_OF_TARGET[target])
        if not IS_LONG:
            item.add_marker(pytest.mark.skip(reason=f"make {target} has the time"))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """`make compat` brings Apache Kafka; without it these are left out, because they cannot run."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        begin_with_the_longest(items)
    if {"HEADWATER_KAFKA", "HEADWATER_KAFKA_JARS"} & os.environ.keys():
        return
    beside = [item for item in items if item.get_closest_marker("kafka")]
    items[:] = [item for item in items if not item.get_closest_marker("kafka")]
    if beside:
        config.hook.pytest_deselected(items=beside)


def begin_with_the_longest(items: list[pytest.Item]) -> None:
    """So that at the end no process is left alone with them."""
    slow = {group_of(item.nodeid) for item in items if item.get_closest_marker("slow")}
    ranks = {**dict.fromkeys(slow, 1), **dict.fromkeys(TOGETHER, 0)}
    items.sort(key=lambda item: ranks.get(group_of(item.nodeid), 2))


def group_of(nodeid: str) -> str:
    """Tests that one process does: those of a file may share what the file has started."""
    path = nodeid.partition("::")[0]
    return next((name for name, paths in TOGETHER.items() if path.startswith(paths)), path)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: "Producer") -> "LoadScopeScheduling":
    """However `pytest -n` is called."""
    from xdist.scheduler import LoadScopeScheduling

    config.option.loadscopereorder = False
    scheduling = LoadScopeScheduling(config, log)
    scheduling._split_scope = group_of
    return scheduling


@pytest.hookimpl(wrapper=True)
def pytest_report_to_serializable() -> Generator[None, Any, Any]:
    """A failure that quotes text which is no Unicode ends as a failure, not as the end of the run:
    processes of `pytest -n` can tell each other nothing else."""
    return sendable((yield))


def sendable(told: Any) -> Any:
    match told:
        case str():
            return told.encode(errors="backslashreplace").decode()
        case dict():
            return {sendable(key): sendable(value) for key, value in told.items()}
        case list():
            return [sendable(each) for each in told]
        case tuple():
            return tuple(sendable(each) for each in told)
    return told


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> Generator[None, Any, Any]:
    """The last lines name what failed: of a long output, often nothing else is kept."""
    result = yield
    if (reporter := session.config.pluginmanager.get_plugin("terminalreporter")) is not None:
        for told in (*reporter.stats.get("failed", ()), *reporter.stats.get("error", ())):
            reporter.write_line(f"{told.outcome}: {told.nodeid}")
    return result


@pytest.fixture
def uncollected() -> Iterator[None]:
    """What is open in this process is neither closed nor kept open by chance: of what earlier tests
    have left nothing is collected meanwhile, nor of what this one leaves."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """The address of a PostgreSQL that all tests of a run share, each in a database of its own. Its
    sources begin their heartbeat at once: a server at rest sends its last position only then."""
    from tests.databases import running_postgres

    with running_postgres() as address, pytest.MonkeyPatch.context() as patched:
        patched.setattr("headwater.connectors.postgres.follower.FIRST_BEAT_SECONDS", 0.1)
        yield address


@pytest.fixture
def guest(postgres: str) -> "Iterator[Guest]":
    """A database of its own, and a role that may read and replicate and no more."""
    from tests.databases import guest_in

    with guest_in(postgres, f"guest_{uuid4().hex}") as guest:
        yield guest


@pytest.fixture(scope="session")
def mariadb() -> Iterator[str]:
    from tests.databases import running_mariadb

    with running_mariadb() as address:
        yield address


@pytest.fixture(scope="session", autouse=True)
def modules_have_one_name() -> Iterator[None]:
    """The links in `headwater/` would allow a second one, with classes of its own."""
    yield
    assert not {name for name in sys.modules if name.split(".")[0] in PRODUCT}


@pytest.fixture(scope="session")
def s3() -> Iterator["S3Settings"]:
    """An S3 stand-in for all tests that want one."""
    from tests.moto_server import run_s3

    with run_s3() as settings:
        yield settings
