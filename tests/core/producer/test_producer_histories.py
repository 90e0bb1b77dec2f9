"""Whatever happens between a producer and its stream, the rules hold (`producing_checks`).

The same histories are lived each time; those that are marked slow are others each time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from shardway.model import PutResult
from tests.core.producer.histories import fates, histories, puts, sizes, times
from tests.core.producer.producing_checks import check, results_of
from tests.core.producer.simulated_producing import Fate, History, Producing, Put, Reshard, Withdrawal

if TYPE_CHECKING:
    from collections.abc import Callable

kinds = pytest.mark.parametrize(
    ("aggregate", "ordered"),
    [
        pytest.param(aggregate, ordered, id=f"{'aggregates' if aggregate else 'plain'}{'-in-order' if ordered else ''}")
        for aggregate in (False, True)
        for ordered in (False, True)
    ],
)
short = st.sampled_from([0.05, 0.3, 1.0, 3.0])
denials = st.sampled_from([0.0, 0.3]).map(lambda way_s: Fate("denied", way_s))
TROUBLES: dict[str, dict[str, Any]] = {
    "times to live": {"record_ttl_s": short},
    "each-its-own": {"puts": puts(record_ttl_s=st.one_of(st.none(), short)), "record_ttl_s": 2.0},
    "poison": {"puts": puts(st.one_of(sizes, st.just(-1))), "service_bytes_max": st.sampled_from([500, 2_000, 10_000])},
    "denied": {"fates": st.lists(st.one_of(fates, denials), max_size=12).map(tuple)},
    "given-up": {"refused_at_s": times},
    "closed": {"close_at_s": times},
}


def live(
    strategy: st.SearchStrategy[History], examples: int, test: Callable[[History], None], *, derandomize: bool = True
) -> None:
    chosen = settings(
        max_examples=examples,
        derandomize=derandomize,
        database=None,
        deadline=None,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
        print_blob=True,
    )
    run: Callable[[], None] = chosen(given(strategy)(test))
    run()


def written_in_the_end(history: History) -> None:
    ran = Producing(history).run()
    check(ran)
    for data, result in results_of(ran).items():
        assert isinstance(result, PutResult) or data in ran.withdrawn


def checked(history: History) -> None:
    check(Producing(history).run())


@kinds
def test_all_is_written_once_the_service_is_well_again(aggregate: bool, ordered: bool) -> None:
    live(histories(aggregate=aggregate, ordered=ordered), 80, written_in_the_end)


@kinds
@pytest.mark.parametrize("trouble", TROUBLES)
def test_what_can_not_be_written_is_told(trouble: str, aggregate: bool, ordered: bool) -> None:
    live(histories(aggregate=aggregate, ordered=ordered, **TROUBLES[trouble]), 18, checked)


@pytest.mark.parametrize("trouble", [None, *TROUBLES])
def test_in_order_whatever_one_step_looks_at(trouble: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shardway.core.producer.request_builder.EXAMINED_RECORDS_MAX", 2)
    live(histories(aggregate=False, ordered=True, **TROUBLES.get(trouble or "", {})), 30, checked)


def test_a_large_record_does_not_take_the_place_of_a_small_one_that_was_withdrawn() -> None:
    """Found by chance: the small one was measured, and the one behind it taken, over the request's bound."""
    written_in_the_end(
        History(
            paced=False,
            shard_count=1,
            linger_s=0.0,
            requests_in_flight_max=1,
            request_records_max=5,
            request_bytes_max=4000,
            aggregate_bytes_max=60,
            puts=(
                Put(0.0, (("a", 0), ("a", 0), ("a", 250), ("a", 3900), ("a", 0), ("a", 3900))),
                Put(0.0, (("a", 0),)),
            ),
            fates=(
                Fate("answered", back_s=1.5, broken=0.3),
                Fate("throttled"),
                Fate("throttled", back_s=0.3),
                Fate("answered", back_s=0.3),
            ),
            withdrawals=(Withdrawal(at_s=2.0, put=0, place=4),),
            aggregate=True,
        )
    )


def test_records_are_withdrawn_that_a_reshard_moved_before_any_of_them_was_found() -> None:
    """Found by chance: the shards were listed between two steps that had passed other records, and no step followed."""
    checked(
        History(
            aggregate=False,
            ordered=True,
            paced=True,
            seed=3,
            shard_count=1,
            blind_s=(0.5, 1.0),
            linger_s=0.0,
            requests_in_flight_max=1,
            request_records_max=5,
            request_bytes_max=400,
            service_bytes_max=500,
            aggregate_bytes_max=60,
            puts=(
                Put(0.0, (("a", 0),)),
                Put(0.0, (("b", 3900),)),
                Put(0.0, (("c", 0), ("a", -1), ("b", 0), ("d", 1000))),
                Put(
                    0.0,
                    (
                        *(("a", 0), ("a", -1), ("a", 0), ("b", 1000), ("d", 0), ("a", -1)),
                        *(("c", -1), ("a", 0), ("d", 0), ("a", -1), ("a", 0), ("b", 0)),
                    ),
                ),
                Put(0.0, (("a", 0),)),
                Put(0.0, (("a", 0),)),
                Put(0.0, (("a", 0),)),
                Put(0.0, (("b", -1), ("b", 0), ("c", 0))),
                Put(0.001, (("b", 3900), ("c", 0), ("d", 0))),
                Put(1.001, (("a", 0),)),
            ),
            reshards=(Reshard(1.5, "split", 0),),
            withdrawals=(Withdrawal(at_s=1.5, put=3, place=-1),),
        )
    )


@pytest.mark.slow
@kinds
def test_all_is_written_in_many_more_histories(aggregate: bool, ordered: bool) -> None:
    live(histories(aggregate=aggregate, ordered=ordered), 2_000, written_in_the_end, derandomize=False)


@pytest.mark.slow
@kinds
@pytest.mark.parametrize("trouble", TROUBLES)
def test_what_can_not_be_written_is_told_in_many_more_histories(trouble: str, aggregate: bool, ordered: bool) -> None:
    strategy = histories(aggregate=aggregate, ordered=ordered, **TROUBLES[trouble])
    live(strategy, 500, checked, derandomize=False)


# --- how long a record waits ----------------------------------------------------------------------


def waits_for_company_at_most(history: History) -> None:
    ran = Producing(history).run()
    check(ran)
    for data, record in ran.records.items():
        waited_s = ran.first_sent_at_s[data] - record.put_at_s
        assert waited_s <= history.linger_s + 1e-9
        since_s = record.put_at_s - history.linger_s - 1e-9
        assert waited_s == 0.0 or any(since_s <= at_s <= record.put_at_s for at_s in ran.sent_at_s), "after a pause"


@pytest.mark.parametrize("aggregate", [False, True])
def test_a_record_that_may_go_waits_no_longer_than_it_lingers(aggregate: bool) -> None:
    """So it is while no pace, no bound on requests and no failure holds it back."""
    calm = histories(
        aggregate=aggregate,
        ordered=False,
        paced=False,
        linger_s=st.sampled_from([0.0, 0.0015, 0.3]),
        listed_after_s=0.0,
        blind_s=None,
        requests_in_flight_max=1_000,
        fates=(),
        reshards=(),
        withdrawals=(),
    )
    live(calm, 80, waits_for_company_at_most)


# --- many records ---------------------------------------------------------------------------------


@kinds
@pytest.mark.parametrize("paced", [False, True])
def test_full_requests_side_by_side_across_reshards(aggregate: bool, ordered: bool, paced: bool) -> None:
    """Hundreds of records a request, half of them refused now and then, while the shards change under them."""
    keys = [f"key {number}" for number in range(60)]
    history = History(
        aggregate=aggregate,
        ordered=ordered,
        paced=paced,
        shard_count=4,
        request_bytes_max=20_000,
        service_bytes_max=15_000,
        aggregate_bytes_max=1_000,
        lag_s=0.3,
        puts=tuple(
            Put(step / 50, tuple((keys[(step * 7 + number) % 60], number % 40) for number in range(60)))
            for step in range(30)
        ),
        fates=tuple(
            Fate(
                kind=("answered", "answered", "reply lost", "throttled", "answered", "partly done")[number % 6],
                way_s=(number * 7 % 5) / 50,
                back_s=(number * 3 % 5) / 50,
                refused=(0.0, 0.5, 0.1)[number % 3],
                broken=(0.1, 0.0)[number % 2],
            )
            for number in range(40)
        ),
        reshards=(Reshard(0.2, "split", 1), Reshard(0.25, "merge", 0), Reshard(0.5, "crooked", 2)),
    )
    written_in_the_end(history)
