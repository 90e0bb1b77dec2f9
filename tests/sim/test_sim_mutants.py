"""The simulator notices each rule that is taken away, within a bounded number of plans in which that can happen."""

from __future__ import annotations

from itertools import count, islice
from typing import TYPE_CHECKING

import pytest

from shardway.testing import FaultPlan, Simulator
from tests.sim.sim_mutants import (
    MUTANTS,
    a_seek_is_dropped,
    the_token_does_not_grow,
)

if TYPE_CHECKING:
    from collections.abc import Callable

PLANS_MAX = 60

QUICK = {the_token_does_not_grow, a_seek_is_dropped}
"""Found at once; all others are run by make test-all."""


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("spoil", "rules", "suits"),
    [pytest.param(*one, marks=[] if one[0] in QUICK else pytest.mark.slow) for one in MUTANTS],
    ids=[one[0].__name__ for one in MUTANTS],
)
def test_a_rule_that_is_taken_away_is_missed(
    monkeypatch: pytest.MonkeyPatch,
    spoil: Callable[[pytest.MonkeyPatch], None],
    rules: set[str],
    suits: Callable[[FaultPlan], bool],
) -> None:
    spoil(monkeypatch)
    plans = (plan for plan in map(FaultPlan.draw, count()) if suits(plan))
    found: set[str] = set()
    for plan in islice(plans, PLANS_MAX):
        found |= {broken.rule for broken in Simulator(plan).run().broken}
        if found & rules:
            return
    pytest.fail(f"in {PLANS_MAX} plans none of {sorted(rules)} was found, only {sorted(found)}")
