"""Verdicts: each follows from looks at one lease over a window, or from what its worker tells. What one look cannot
tell is not known yet, and never well.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardway.inspect import Look, State, judge
from shardway.inspect.lag.reports import worst


def looks(count: int, every_s: float = 3.0, **by_number: Any) -> list[Look]:
    """Looks of a worker that renews its lease; what is given is a function of the look's number."""
    values: dict[str, Any] = {
        "owner": lambda _: "w1",
        "counter": lambda number: number,
        "sequence_number": lambda number: 100 + number,
        "behind_s": lambda _: 500.0,
        **by_number,
    }
    return [
        Look(at_s=1000.0 + number * every_s, **{name: value(number) for name, value in values.items()})
        for number in range(count)
    ]


@pytest.mark.parametrize(
    ("found", "state", "why"),
    [
        (looks(1, ended=lambda _: True, owner=lambda _: None), State.ENDED, "read to its end"),
        (looks(1, owner=lambda _: None), State.UNOWNED, "no worker has the lease"),
        (looks(1, behind_s=lambda _: 0.0), State.OK, "at the tip"),
        (looks(1, behind_s=lambda _: 59.0), State.OK, "59 s behind"),
        (looks(1), State.FAR_BEHIND, "one look does not tell"),
        (looks(1, behind_s=lambda _: 119.0), State.UNKNOWN, "one look does not tell"),
        (looks(1, exact=lambda _: False), State.UNKNOWN, "one look does not tell"),
        (looks(1, owner=lambda _: None, by_query=lambda _: True), State.FAR_BEHIND, "one look does not tell"),
        (looks(1, unsettled_s=lambda _: 840.0), State.STALLED, "not settled for 14 m, as its worker tells"),
        (looks(8, unsettled_s=lambda _: 120.0), State.STALLED, "as its worker tells"),
        (looks(1, unsettled_s=lambda _: 119.0), State.FAR_BEHIND, "not settled for 1 m 59 s"),
        (looks(1, unsettled_s=lambda _: 0.0), State.FAR_BEHIND, "its worker settles records"),
        (looks(1, unsettled_s=lambda _: 840.0, behind_s=lambda _: 9.0), State.OK, "9 s behind"),
        (looks(1, silent_s=lambda _: 20.0), State.FAR_BEHIND, "one look"),
        (looks(1, silent_s=lambda _: 21.0), State.STOPPED, "w1 has not written its own row for 21 s"),
        (looks(1, silent_s=lambda _: 21.0, behind_s=lambda _: 0.0), State.STOPPED, "own row"),
        (looks(3, silent_s=lambda _: 900.0), State.STEADY, "stays"),
        (looks(1, behind_s=lambda _: None), State.UNKNOWN, "where the next record is"),
        (looks(8, behind_s=lambda n: 500 + n * 1.5), State.FALLING_BEHIND, "grows by 0.50 s each second"),
        (looks(8, behind_s=lambda n: 500 - n * 6), State.CATCHING_UP, "at the tip in 3 m 49 s"),
        (looks(8), State.STEADY, "it stays 8 m 20 s behind"),
        (looks(8, counter=lambda _: 7), State.STOPPED, "w1 has not renewed the lease for 21 s"),
        (looks(8, counter=lambda _: 7, behind_s=lambda _: 0.0), State.STOPPED, "not renewed"),
        (looks(7, counter=lambda _: 7), State.STEADY, "stays"),
        (looks(8, sequence_number=lambda _: 100), State.FAR_BEHIND, "has not moved in 21 s: look for longer"),
        (looks(8, sequence_number=lambda _: 100, behind_s=lambda _: 90.0), State.UNKNOWN, "has not moved in 21 s"),
        (looks(41, sequence_number=lambda _: 100, exact=lambda _: False), State.UNKNOWN, "perhaps none waits"),
        (looks(41, sequence_number=lambda _: 100), State.STALLED, "has not moved for 2 m while records wait"),
        (looks(4, sequence_number=lambda n: [100, 150, 90, 95][n]), State.REWOUND, "went back"),
        (looks(4, sequence_number=lambda n: [100, 150, 90, 151][n]), State.STEADY, "stays"),
        (looks(3, sequence_number=lambda n: [100, 150, None][n]), State.REWOUND, "went back"),
    ],
)
def test_verdicts(found: list[Look], state: State, why: str) -> None:
    judged = judge(found)
    assert judged.state is state
    assert why in judged.why


def test_a_worker_with_a_longer_failover_time_has_not_stopped_so_soon() -> None:
    found = looks(8, counter=lambda _: 7)
    assert judge(found, failover_s=30.0).state is State.STEADY


def test_a_lease_that_changed_hands_is_renewed() -> None:
    found = looks(8, counter=lambda _: 7, owner=lambda number: "w1" if number < 4 else "w2")
    assert judge(found).state is State.STEADY


def test_the_worst_verdict_counts() -> None:
    assert worst([State.OK, State.STOPPED, State.ENDED]) is State.STOPPED
    assert worst([]) is State.OK


@given(
    st.lists(
        st.builds(
            Look,
            at_s=st.floats(0, 1e6),
            owner=st.none() | st.sampled_from(["w1", "w2"]),
            counter=st.integers(0, 3),
            sequence_number=st.none() | st.integers(0, 3),
            ended=st.booleans(),
            behind_s=st.none() | st.floats(0, 1e6),
        ),
        min_size=1,
        max_size=6,
    )
)
def test_every_series_of_looks_has_a_verdict_with_its_reason(found: list[Look]) -> None:
    judged = judge(sorted(found, key=lambda one: one.at_s))
    assert judged.why
    assert (judged.left_s is not None) == (judged.state is State.CATCHING_UP)
