"""What a page without records means."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardway.core.log.silence import BARREN_PAGES_MAX, NEAR_TIP_MS, Meaning, Silence
from tests.momentary import now

DAY_MS = 86_400_000
HOUR_MS = 3_600_000


def pages(silence: Silence, *behind_ms: int | None, asked_s: float | None = 1e6) -> list[Meaning]:
    return [silence.empty(one, is_last=False, asked_s=asked_s) for one in behind_ms]


def test_silence_that_is_crossed_is_no_end_however_long_it_is() -> None:
    silence = Silence()
    found = pages(silence, *range(365 * DAY_MS, 0, -HOUR_MS), 0)
    assert set(found[1:-1]) == {Meaning.CROSSING}
    assert found[-1] is Meaning.TIP
    assert not silence.leads_nowhere


def test_an_iterator_that_comes_no_nearer_leads_nowhere() -> None:
    silence = Silence()
    assert set(pages(silence, *[DAY_MS] * BARREN_PAGES_MAX)) == {Meaning.STANDING}
    assert silence.leads_nowhere
    assert silence.reached_s is None, "a page of a trimmed number says nothing of what lies before it"


@given(st.lists(st.integers(-400, 400), min_size=BARREN_PAGES_MAX, max_size=50))
def test_what_is_measured_at_different_moments_is_no_progress(jitter: list[int]) -> None:
    silence = Silence()
    assert Meaning.CROSSING not in pages(silence, *(DAY_MS + one for one in jitter))
    assert silence.leads_nowhere


def test_behind_that_is_not_told_is_no_progress() -> None:
    silence = Silence()
    assert set(pages(silence, *[None] * BARREN_PAGES_MAX)) == {Meaning.STANDING}
    assert silence.leads_nowhere


def test_the_tip_brings_no_record_either() -> None:
    silence = Silence()
    assert set(pages(silence, *[0] * BARREN_PAGES_MAX)) == {Meaning.TIP}
    assert silence.leads_nowhere


def test_the_position_in_time_is_where_the_tip_lies_that_far_ahead_and_never_goes_back() -> None:
    silence = Silence()
    silence.records(3 * HOUR_MS)
    assert now(silence.reached_s) is None
    pages(silence, 2 * HOUR_MS, asked_s=100_000.0)
    assert silence.reached_s == 100_000 - 7_200
    pages(silence, 2 * HOUR_MS + 5, asked_s=100_000.0)
    pages(silence, HOUR_MS, asked_s=90_000.0)
    assert silence.reached_s == 100_000 - 7_200
    pages(silence, 0, asked_s=100_001.0)
    assert silence.reached_s == 100_001


def test_a_page_near_the_tip_tells_how_far_it_is_at_once() -> None:
    silence = Silence()
    pages(silence, NEAR_TIP_MS, asked_s=1_000.0)
    assert silence.reached_s == 1_000 - NEAR_TIP_MS / 1000


@pytest.mark.parametrize("how", ["records", "begin"])
def test_a_record_or_another_iterator_begins_the_count_anew(how: str) -> None:
    silence = Silence()
    pages(silence, *[DAY_MS] * (BARREN_PAGES_MAX - 1))
    silence.records(DAY_MS) if how == "records" else silence.begin()
    assert silence.barren == 0
    pages(silence, DAY_MS)
    assert not silence.leads_nowhere


def test_the_end_is_the_end() -> None:
    assert Silence().empty(5, is_last=True, asked_s=1.0) is Meaning.END
