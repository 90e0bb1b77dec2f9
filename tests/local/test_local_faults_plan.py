"""Which calls a fault strikes."""

from __future__ import annotations

import msgspec
import pytest

from shardway.local.faults import FAULTS_MAX, SUBSCRIPTION_EVENT, DrawnFaults, Facts, Fault, FaultPlan
from tests.momentary import now

GET = Facts("GetRecords", "task", "orders", frozenset(("shardId-000000000001",)))


def struck(plan: FaultPlan, calls: int, facts: Facts = GET) -> list[int]:
    return [number for number in range(calls) if plan.draw(facts) is not None]


@pytest.mark.parametrize(
    ("fault", "strikes"),
    [
        (Fault(how="throttle"), True),
        (Fault(how="throttle", operation="GetRecords"), True),
        (Fault(how="throttle", operation="PutRecords"), False),
        (Fault(how="throttle", tag="task"), True),
        (Fault(how="throttle", tag="driver"), False),
        (Fault(how="throttle", stream="orders", shard="shardId-000000000001"), True),
        (Fault(how="throttle", stream="clicks"), False),
        (Fault(how="throttle", shard="shardId-000000000002"), False),
    ],
)
def test_a_fault_strikes_what_it_names(fault: Fault, strikes: bool) -> None:
    plan = FaultPlan()
    order = plan.add(fault)
    assert (plan.draw(GET) is not None) is strikes
    assert order.hits == strikes


def test_events_of_subscriptions_are_struck_only_by_name() -> None:
    event = GET._replace(operation=SUBSCRIPTION_EVENT)
    plan = FaultPlan()
    plan.add(Fault(how="reset"))
    assert plan.draw(event) is None
    plan.add(Fault(how="reset", operation=SUBSCRIPTION_EVENT))
    assert plan.draw(event) is not None


def test_skip_and_count() -> None:
    plan = FaultPlan()
    order = plan.add(Fault(how="throttle", skip=2, count=3))
    assert struck(plan, 10) == [2, 3, 4]
    assert (order.hits, order.spent) == (3, True)


def test_chance_comes_from_the_seed() -> None:
    def run(seed: int) -> list[int]:
        plan = FaultPlan()
        plan.add(Fault(how="throttle", probability=0.3, seed=seed))
        return struck(plan, 1000)

    assert run(7) == run(7) != run(8)
    assert 200 < len(run(7)) < 400


def test_delays_add_up_before_the_first_other_fault() -> None:
    plan = FaultPlan()
    plan.add(Fault(how="delay", delay_s=1.0, count=2))
    throttle = plan.add(Fault(how="throttle", delay_s=0.5, count=1))
    later = plan.add(Fault(how="server_error"))
    assert plan.draw(GET) == DrawnFaults(1.5, throttle)
    assert plan.draw(GET) == DrawnFaults(1.0, later)
    assert plan.draw(GET) == DrawnFaults(0.0, later)


def test_faults_are_taken_back() -> None:
    plan = FaultPlan()
    first, second = plan.add(Fault(how="throttle")), plan.add(Fault(how="reset"))
    assert now(plan.active)
    first.clear()
    assert plan.draw(GET) == DrawnFaults(0.0, second)
    plan.clear()
    assert not plan.active
    assert plan.draw(GET) is None
    assert (first.hits, second.hits) == (0, 1)


def test_their_number_is_bounded() -> None:
    plan = FaultPlan()
    for _ in range(FAULTS_MAX):
        plan.add(Fault(how="throttle"))
    with pytest.raises(ValueError, match="clear some"):
        plan.add(Fault(how="throttle"))


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"how": "delay"}, "needs delay_s"),
        ({"how": "delay", "delay_s": 1e6}, "delay_s lies"),
        ({"how": "throttle", "probability": 1.1}, "probability"),
        ({"how": "partial", "operation": "PutRecords", "share": -1}, "share"),
        ({"how": "partial"}, "only PutRecords"),
        ({"how": "error"}, "needs its code"),
        ({"how": "error", "code": "a\r\nb"}, "letters"),
        ({"how": "error", "code": "A", "status": 200}, "status"),
        ({"how": "throttle", "count": 0}, "count"),
        ({"how": "throttle", "skip": -1}, "skip"),
        ({"how": "explode"}, "Invalid enum"),
        ({"how": "throttle", "shards": 1}, "unknown field"),
    ],
)
def test_a_fault_that_makes_no_sense_is_refused(fields: dict[str, object], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        msgspec.convert(fields, Fault)
