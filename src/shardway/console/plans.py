"""Keep the plans that visitors have made and not applied, each for a bounded time."""

from __future__ import annotations

import secrets
import time
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from shardway.inspect import Plan


PLANS_MAX = 32
PLANS_OF_VISITOR_MAX = 8
PLAN_S = 900.0


class PendingPlan(NamedTuple):
    """A plan that waits to be confirmed."""

    plan: Plan
    visitor: str
    until_s: float


class Plans:
    """Keeps plans that were shown, for a while."""

    def __init__(self) -> None:
        self._plans: dict[str, PendingPlan] = {}

    def add(self, plan: Plan, visitor: str) -> str:
        """Keep a plan, and return its number. Where there is no room, the oldest plan of the same visitor goes first,
        and then of the visitor that has the most.
        """
        now_s = time.monotonic()
        self._plans = {number: one for number, one in self._plans.items() if one.until_s >= now_s}
        counts = Counter(one.visitor for one in self._plans.values())
        if counts[visitor] >= PLANS_OF_VISITOR_MAX:
            self._drop_oldest_of(visitor)
        elif len(self._plans) >= PLANS_MAX:
            self._drop_oldest_of(counts.most_common(1)[0][0])
        number = secrets.token_urlsafe(16)
        self._plans[number] = PendingPlan(plan, visitor, now_s + PLAN_S)
        return number

    def _drop_oldest_of(self, visitor: str) -> None:
        del self._plans[next(number for number, one in self._plans.items() if one.visitor == visitor)]

    def take(self, number: str, visitor: str) -> Plan | None:
        """Return a plan that this visitor was shown, and forget it: a plan is taken once."""
        found = self._plans.get(number)
        if found is None or found.visitor != visitor:
            return None
        del self._plans[number]
        return found.plan if found.until_s >= time.monotonic() else None
