"""No order of events has a child read before its parent has ended, or a parent end without its child's lease."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from shardway.core.assignment import views
from shardway.core.leases import writes
from shardway.core.leases.tenure.state import Tenure
from tests.core.leases.exploring import BrokenRuleError
from tests.core.leases.lease_search import Bounds
from tests.core.leases.lineage_search import LineageSearch

if TYPE_CHECKING:
    from collections.abc import Callable


def search(*, parent: int, child: int, faults: int = 0, ends: int = 0, **rules: Any) -> LineageSearch:
    """``parent``, ``child``: how far their counters go."""
    return LineageSearch(
        Bounds(workers=2, counter=parent, faults=faults, ends=ends, asks=-1),
        Bounds(workers=2, counter=child, faults=faults, ends=ends),
        faults=faults,
        ends=ends,
        **rules,
    )


@pytest.mark.parametrize(
    "bounds",
    [
        pytest.param({"parent": 2, "child": 1}, marks=pytest.mark.slow),
        pytest.param({"parent": 2, "child": 1, "ends": 1}, marks=[pytest.mark.slow, pytest.mark.timeout(1800)]),
        pytest.param({"parent": 2, "child": 2}, marks=[pytest.mark.slow, pytest.mark.timeout(1800)]),
        pytest.param({"parent": 3, "child": 1}, marks=[pytest.mark.slow, pytest.mark.timeout(1800)]),
        pytest.param({"parent": 2, "child": 1, "faults": 1}, marks=[pytest.mark.slow, pytest.mark.timeout(1800)]),
    ],
    ids=[
        "two writes and one",
        "a lease is given or freed",
        "the child is taken over",
        "the parent is taken over",
        "a crash or an unknown outcome",
    ],
)
def test_no_two_tenures_no_checkpoint_back_none_past_the_fence_no_early_child(
    bounds: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    """Of a parent and its child, with two workers; nor is a fence lifted by an older write."""
    found = search(**bounds).run()
    with capsys.disabled():
        print(f"\n  parent and child, {bounds}: {found.states:,} states, {found.moves:,} moves")
    assert found.reached == {"child, not yet ended", "ended", "child read", "a tenure of the parent beyond its end"}
    assert found.states > 40_000


def no_self_fence(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Tenure, "fence_s", property(lambda tenure: float("inf")))


def conditions_ignored(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(writes, "_as_seen", lambda row: ())


def no_worker_waits_for_the_failover_time(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(views, "is_free", lambda lease, workers, failover_s: True)


@pytest.mark.parametrize("spoil", [no_self_fence, conditions_ignored, no_worker_waits_for_the_failover_time])
def test_a_rule_of_leases_that_is_taken_away_is_missed(
    monkeypatch: pytest.MonkeyPatch, spoil: Callable[[pytest.MonkeyPatch], None]
) -> None:
    spoil(monkeypatch)
    with pytest.raises(BrokenRuleError, match=r"a worker that does not own the lease delivers|past its self-fence"):
        search(parent=2, child=1).run()


def test_a_child_that_does_not_wait_is_noticed() -> None:
    with pytest.raises(BrokenRuleError, match="a child is read before its parent is stored as ended"):
        search(parent=2, child=1, awaits_parent=False).run()


def test_an_end_that_is_stored_before_the_child_has_a_lease_is_noticed() -> None:
    with pytest.raises(BrokenRuleError, match="its child has no lease"):
        search(parent=2, child=1, creates_first=False).run()
