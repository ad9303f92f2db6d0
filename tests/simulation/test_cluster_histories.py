"""Whatever befalls the brokers of one cluster, they lose, double, tear and invent nothing, and
work again once nothing fails any more."""

import logging
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.simulation.test_rules import broker_of, controller_of, until
from tests.simulation.world import CLUSTER_FAULTS, Fault, Faults, History, World, play

pytestmark = [pytest.mark.simulation, pytest.mark.slow]

NODES = 3
HISTORIES = max(2, settings().max_examples // 20)
SHORT_S = 6.0
ANY_FAULT = [*CLUSTER_FAULTS, Faults.hang_disk, Faults.lose_disk]
LOST_DISKS = [*[Faults.lose_disk] * 5, Faults.kill, Faults.stall, Faults.cut_link, Faults.isolate]
"""With what may befall the others before everything is on the new disk."""
REPLACING: dict[str, Any] = {"nodes": 4, "replace_voters_after_ms": 3_000}


@pytest.fixture(autouse=True)
def nothing_is_logged() -> Iterator[None]:
    """Hundreds of faults are expected here."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def test_a_history_of_three_brokers_without_faults_is_sound() -> None:
    history = play(1, virtual_s=2.0, faults=(), nodes=NODES)

    assert not history.problems
    assert sum(map(len, history.seen.final.values())) > 100


@pytest.mark.parametrize("seed", [1, 2, 4, 11, 89])
def test_a_known_history_of_three_brokers_breaks_no_promise(seed: int) -> None:
    check(seed)


@pytest.mark.parametrize("seed", [1, 2])
def test_a_history_of_hung_disks_breaks_no_promise(seed: int) -> None:
    check(seed, [Faults.hang_disk])


@pytest.mark.parametrize("seed", [3, 6])
def test_a_history_of_lost_disks_breaks_no_promise(seed: int) -> None:
    history = check(seed, LOST_DISKS)

    assert any(Faults.lose_disk.__name__ in each for each in history.faults)


def test_a_history_of_all_faults_breaks_no_promise() -> None:
    """For a while only a broker is up that has not heard who is in sync."""
    check(4610, ANY_FAULT)


async def controller_dies_while_it_replaces_a_voter(world: World) -> None:
    """Only two of four voters are left then, until that voter is back."""
    await until(lambda: world.is_whole)
    controller = controller_of(world)
    driver = broker_of(controller).quorum
    gone = next(each for each in driver.voters if each != driver.replica)
    world.machines[gone.node_id - 1].kill()
    await until(lambda: len(driver.voters) == 4, look_s=0.001)
    controller.kill()
    for machine in (world.machines[gone.node_id - 1], controller):
        machine.boot()
        await machine.started()


@pytest.mark.parametrize("seed", [1, 2])
def test_a_history_of_replaced_voters_breaks_no_promise(seed: int) -> None:
    check(seed, accidents=controller_dies_while_it_replaces_a_voter, virtual_s=10.0, **REPLACING)


def test_a_history_that_ends_with_an_open_transaction_breaks_no_promise() -> None:
    """Its writer could not abort it; the relay has more to copy once its time is over."""
    check(124, ANY_FAULT, **REPLACING)


@pytest.mark.long("sim")
@settings(max_examples=HISTORIES)
@given(seed=st.integers(0, 2**32), faults=st.sampled_from([ANY_FAULT, LOST_DISKS]))
def test_no_history_of_replaced_voters_breaks_a_promise(seed: int, faults: Sequence[Fault]) -> None:
    check(seed, faults, **REPLACING)


@pytest.mark.long("sim")
@settings(max_examples=HISTORIES)
@given(seed=st.integers(0, 2**32), faults=st.sampled_from([ANY_FAULT, LOST_DISKS]))
def test_no_history_of_three_brokers_breaks_a_promise(seed: int, faults: Sequence[Fault]) -> None:
    check(seed, faults)


def check(seed: int, faults: Sequence[Fault] = CLUSTER_FAULTS, **given: Any) -> History:
    history = play(seed, **{"virtual_s": SHORT_S, "faults": faults, "nodes": NODES, **given})

    assert not history.problems, "\n".join([*history.faults, *history.problems[:20]])
    return history
