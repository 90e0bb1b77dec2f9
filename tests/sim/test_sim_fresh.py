"""The command line with seeds from the clock says which they are."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from shardway.testing.sim.__main__ import main
from shardway.testing.sim.plan import FaultPlan
from shardway.testing.sim.simulator import Simulator

if TYPE_CHECKING:
    from collections.abc import Iterator

NEW = ("late_orders", "pauses", "collects", "getmany")


def test_fresh_seeds_are_named_so_that_they_can_be_repeated(capsys: pytest.CaptureFixture[str]) -> None:
    firsts = []
    for _ in range(2):
        main(["--fresh", "--seeds", "0", "--jobs", "1"])
        (first,) = re.findall(r"^the first seed is (\d+): --seeds 0 --first \1 runs the same", capsys.readouterr().out)
        firsts.append(int(first))
    assert firsts[0] <= firsts[1], "the clock says it"


def _of(program: str) -> Iterator[FaultPlan]:
    return (plan for plan in map(FaultPlan.draw, range(2_000, 4_000)) if plan.program == program)


@pytest.mark.parametrize("program", NEW)
def test_programs_that_steer_their_consumer_break_no_rule(program: str) -> None:
    plans = _of(program)
    for _ in range(2):
        report = Simulator(next(plans)).run()
        assert report.ok, report
