from __future__ import annotations

import collections
import json
import random
import statistics

import pytest

from shardway.cli.workload import SIZE_MAX, SIZE_MIN, Size, Workload
from shardway.errors import OptionError


def workload(size: str = "100", keys: int = 10, skew: float = 0.0, seed: int = 1) -> Workload:
    return Workload(size=Size.parse(size), keys=keys, skew=skew, run="0123abcd", rng=random.Random(seed))


def test_records_tell_their_run_index_and_time() -> None:
    work = workload()
    records = work.take(3, 1767225600.1234) + work.take(2, 1767225601.0)
    told = [json.loads(record.data) for record in records]
    assert [one["index"] for one in told] == [0, 1, 2, 3, 4]
    assert [one["time"] for one in told] == [1767225600.123] * 3 + [1767225601.0] * 2
    assert {one["run"] for one in told} == {"0123abcd"}
    assert len({one["pad"] for one in told}) == 5
    assert work.made == 5


@pytest.mark.parametrize("size", [SIZE_MIN, 81, 500, SIZE_MAX])
def test_a_fixed_size_is_exact(size: int) -> None:
    work = workload(str(size))
    work.made = 10**9  # a long index
    assert {len(record.data) for record in work.take(20, 1767225600.0)} == {size}


def test_sizes_from_a_range() -> None:
    sizes = [len(record.data) for record in workload("100-300").take(5000, 1767225600.0)]
    assert (min(sizes), max(sizes)) == (100, 300)
    assert statistics.mean(sizes) == pytest.approx(200, rel=0.05)


def test_lognormal_sizes_have_the_mean() -> None:
    sizes = [len(record.data) for record in workload("lognormal:2000").take(20_000, 1767225600.0)]
    assert statistics.mean(sizes) == pytest.approx(2000, rel=0.05)
    assert statistics.median(sizes) == pytest.approx(2000 / 1.6487, rel=0.05)  # exp(sigma² / 2) below the mean
    assert min(sizes) >= SIZE_MIN


def test_keys_are_even_or_skewed() -> None:
    even = collections.Counter(record.partition_key for record in workload(keys=4).take(8000, 0.0))
    assert sorted(even) == ["key-0", "key-1", "key-2", "key-3"]
    assert max(even.values()) < 1.1 * min(even.values())
    skewed = collections.Counter(record.partition_key for record in workload(keys=1000, skew=1.0).take(20_000, 0.0))
    assert skewed["key-0"] / skewed["key-1"] == pytest.approx(2, rel=0.1)
    assert skewed["key-0"] / skewed["key-9"] == pytest.approx(10, rel=0.2)


def test_the_same_seed_makes_the_same_records() -> None:
    assert workload("80-999", skew=0.5).take(50, 1.0) == workload("80-999", skew=0.5).take(50, 1.0)
    assert workload("80-999", seed=2).take(50, 1.0) != workload("80-999", seed=3).take(50, 1.0)


@pytest.mark.parametrize("text", ["", "x", "1-", "-5", "100-200-300", "normal:100", "lognormal:", "lognormal:x", "1.5"])
def test_a_size_that_cannot_be_read(text: str) -> None:
    with pytest.raises(OptionError, match="write bytes, as in 512, 100-2000 or lognormal:512"):
        Size.parse(text)


@pytest.mark.parametrize("text", ["79", "300-200", "10-200", str(SIZE_MAX + 1), "lognormal:20"])
def test_a_size_that_cannot_be(text: str) -> None:
    with pytest.raises(OptionError, match="sizes are from 80 to"):
        Size.parse(text)


def test_all_faults_at_once() -> None:
    with pytest.raises(OptionError) as caught:
        workload(keys=0, skew=-1.0)
    assert caught.value.faults == ["--keys 0: from 1 to 1000000", "--skew -1.0: from 0 (all keys alike) to 10"]
