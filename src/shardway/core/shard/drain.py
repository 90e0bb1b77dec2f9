"""A drain is the time in which a shard is about to go: what is in flight is waited for, up to a deadline.

The drain is over, and `commands.Drained` says so, when its deadline comes, or when the listeners have had their last
words and nothing is waited for any more (`DrainObstacle`):

| a drain | becomes | by |
|---|---|---|
| the listeners have their last words (`Revoking`) | what is in flight is waited for | `RevokingDone` |
| | over, not in time | `RevokingFailed` |
| what is in flight is waited for | over, in time | nothing is waited for |
| either | over, in time if nothing is waited for | the deadline |

A drain depends on two things that tell nothing when they change: which callers there are, and which function of the
program runs. Where they matter, `AskForCallers` asks for them, and `CallersSeen` has them.
"""

from __future__ import annotations

import math
from enum import StrEnum
from typing import NamedTuple

DRAIN_TOLD_AFTER_S = 1.0
"""An event reports what a drain waits for when the drain has taken this long."""
GAPS_LOOK_S = 0.1
"""The interval at which a drain that waits for callers to take the rest looks whether these are still there."""


class DrainObstacle(StrEnum):
    """What keeps a drain from its end, as the event names it (`shardway.events.HandoffWaits`)."""

    HANDLERS = "handlers"
    LETTERS = "dead letters"
    CHECKPOINT = "a pending checkpoint"
    CALLERS = "callers"


class Drain(NamedTuple):
    """A drain that is under way."""

    until_s: float
    tell_at_s: float
    """The time at which an event says what is waited for; infinity when that was emitted."""
    is_said: bool = False
    """True when the listeners have had their last words."""

    @classmethod
    def begun(cls, until_s: float, now_s: float) -> Drain:
        """Return a drain that begins now."""
        return cls(until_s, now_s + DRAIN_TOLD_AFTER_S)

    def next_at_s(self, now_s: float) -> float:
        """Return the next time at which time alone leads to something; infinity when there is none."""
        return min((at_s for at_s in (self.until_s, self.tell_at_s) if at_s > now_s), default=math.inf)

    def may_be_over(self, now_s: float) -> bool:
        """True when the drain ends as soon as nothing is waited for."""
        return self.is_said or now_s >= self.until_s

    def told_when_program_took(self, for_s: float, now_s: float) -> Drain:
        """Return the drain with its event due once a function of the program has run for `DRAIN_TOLD_AFTER_S`; it has
        run for ``for_s`` seconds now.
        """
        return self._replace(tell_at_s=now_s + max(0.0, DRAIN_TOLD_AFTER_S - for_s))
