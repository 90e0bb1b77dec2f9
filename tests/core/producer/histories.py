"""Histories for Hypothesis: short ones, in which much goes wrong at once."""

from __future__ import annotations

from itertools import accumulate
from typing import Any

from hypothesis import strategies as st

from tests.core.producer.simulated_producing import Fate, History, Put, Reshard, Withdrawal

KEYS = ("a", "b", "c", "d", "e1", "e2", "ü", "k" * 40)
times = st.floats(0, 4).map(lambda at_s: round(at_s, 3))
sizes = st.one_of(st.integers(0, 120), st.sampled_from([0, 1, 250, 299, 300, 301, 1_000, 3_900, 5_000]))
shares = st.sampled_from([0.0, 0.0, 0.3, 1.0])
fates = st.builds(
    Fate,
    kind=st.sampled_from(
        ["answered", "answered", "answered", "throttled", "not sent", "lost", "reply lost", "partly done", "late"]
    ),
    way_s=st.sampled_from([0.0, 0.01, 0.3, 1.5]),
    back_s=st.sampled_from([0.0, 0.01, 0.3, 1.5]),
    refused=shares,
    broken=shares,
)
reshards = st.builds(Reshard, at_s=times, kind=st.sampled_from(["split", "crooked", "merge"]), place=st.integers(0, 3))


no_time_to_live = st.none()


@st.composite
def puts(draw: Any, sizes: Any = sizes, record_ttl_s: Any = no_time_to_live) -> tuple[Put, ...]:
    """Puts of a few records each, some of them at the same time."""
    gaps = draw(st.lists(st.sampled_from([0.0, 0.001, 0.01, 0.2, 1.0]), min_size=1, max_size=10))
    keys = st.sampled_from(KEYS[: draw(st.integers(1, len(KEYS)))])
    records = st.lists(st.tuples(keys, sizes), min_size=1, max_size=12).map(tuple)
    return tuple(Put(at_s, draw(records), draw(record_ttl_s)) for at_s in accumulate(gaps))


def histories(**given: Any) -> Any:
    """Histories; what is given by name takes the place of what would be drawn."""
    drawn = {
        "paced": st.booleans(),
        "seed": st.integers(0, 99),
        "shard_count": st.integers(1, 3),
        "blind_s": st.sampled_from([None, None, None, (0.0, 9.0), (0.0, 1.0), (0.5, 1.0), (1.0, 3.0)]),
        "linger_s": st.sampled_from([0.0, 0.005, 0.3]),
        "requests_in_flight_max": st.sampled_from([1, 2, 4, 24]),
        "request_records_max": st.sampled_from([1, 5, 500]),
        "request_bytes_max": st.sampled_from([400, 4_000]),
        "aggregate_bytes_max": st.sampled_from([60, 300]),
        "listed_after_s": st.sampled_from([0.0, 0.05, 0.5]),
        "lag_s": st.sampled_from([0.0, 0.1, 0.5, 1.0]),
        "holes": st.booleans(),
        "explicit": st.booleans(),
        "puts": puts(),
        "fates": st.lists(fates, max_size=12).map(tuple),
        "reshards": st.lists(reshards, max_size=4).map(tuple),
        "withdrawals": st.lists(
            st.builds(Withdrawal, at_s=times, put=st.integers(0, 9), place=st.integers(-1, 11)), max_size=4
        ).map(tuple),
    }
    drawn |= {name: value if isinstance(value, st.SearchStrategy) else st.just(value) for name, value in given.items()}
    return st.builds(History, **drawn)
