from random import Random

import pytest
from shard_simulator import BucketLimit, Simulation, Writer

from penstock.core.adaptive import AdaptiveRate


@pytest.mark.parametrize("size", [100, 1_500, 51_200])
@pytest.mark.parametrize("rtt_s", [0.005, 0.05])
def test_two_producers_settle(size, rtt_s):
    writers = [Writer(size, rtt_s), Writer(size, rtt_s, start_s=0.01)]
    Simulation(writers, BucketLimit(), seed=1).run(60)
    assert sum(writer.share(20, 60) for writer in writers) > 0.97
    totals = [writer.totals(0, 60) for writer in writers]
    refused = sum(total[1] for total in totals)
    assert refused / (refused + sum(total[0] for total in totals)) < 0.04


@pytest.mark.parametrize("size", [100, 1_500, 51_200])
def test_one_alone_has_the_whole_shard(size):
    writer = Writer(size)
    Simulation([writer], BucketLimit(), seed=1).run(30)
    assert writer.share(0, 30) > 0.98
    assert writer.refused(0, 30) == 0


def test_a_record_larger_than_the_burst_passes_and_is_paid_for():
    rate = AdaptiveRate(now_s=0.0, rng=Random(1))
    size = 10 * 1_048_576
    assert rate.wait_s(0.0, 1, size) == 0.0
    rate.take(0.0, 1, size)
    assert rate.allowance(9.0) == (0, 0)
    assert rate.allowance(10.5) != (0, 0)
