"""The service's clock: real time that can be moved on, or time that stands still."""

from __future__ import annotations

import time

import pytest

from shardway.local.clock import VirtualClock


def test_it_runs_with_the_machine_and_is_moved_on() -> None:
    machine = [50.0]
    clock = VirtualClock(1000.0, machine=lambda: machine[0])
    assert clock.now() == clock() == 1000.0
    machine[0] += 2.5
    assert clock.now() == 1002.5
    assert clock.advance(3600) == 4602.5


def test_it_follows_small_adjustments_but_never_goes_back() -> None:
    machine = [50.0]
    clock = VirtualClock(1000.0, machine=lambda: machine[0])
    machine[0] -= 0.4
    assert clock.now() == 1000.0
    machine[0] += 1.0
    assert clock.now() == pytest.approx(1000.6)


def test_it_goes_on_when_the_machine_is_set_back() -> None:
    machine = [5000.0]
    clock = VirtualClock(1000.0, machine=lambda: machine[0])
    machine[0] -= 3600
    assert clock.now() == 1000.0
    machine[0] += 2.0
    assert clock.now() == 1002.0


def test_without_a_start_it_is_the_machines_time() -> None:
    before = time.time()
    assert before - 1 <= VirtualClock().now() <= time.time() + 1


def test_it_can_stand_still() -> None:
    clock = VirtualClock(5.0, running=False)
    assert clock.now() == 5.0
    clock.advance(0.5)
    assert clock.now() == 5.5


def test_it_does_not_go_back_and_tells_those_that_listen() -> None:
    moves: list[float] = []
    clock = VirtualClock(5.0, running=False)
    clock.on_advance(moves.append)
    with pytest.raises(ValueError, match="does not go back"):
        clock.advance(-1)
    clock.advance(2)
    assert moves == [2]
