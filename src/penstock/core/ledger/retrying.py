"""What a failure leads to: the same again, halves, or the end. A table in the form of one function."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from penstock.core.ledger.settings import GiveUp, LastResort, Retry
from penstock.core.pacing import full_jitter_s

if TYPE_CHECKING:
    from random import Random


class Again(NamedTuple):
    """Hand the same records out again."""

    delay_s: float

    @property
    def told(self) -> tuple[str, float]:
        """Its name, and the seconds before it is done."""
        return "Again", self.delay_s


class Halve(NamedTuple):
    """Hand the first half out again, then the second."""

    delay_s: float

    @property
    def told(self) -> tuple[str, float]:
        """Its name, and the seconds before it is done."""
        return "Halve", self.delay_s


class Last(NamedTuple):
    """No more tries."""

    resort: LastResort

    @property
    def told(self) -> tuple[str, float]:
        """Its name; it is done at once."""
        return type(self.resort).__name__, 0.0


Step = Again | Halve | Last


def after_failure(
    retry: Retry, error: BaseException, *, records: int, tries: int, halved: bool, failing_s: float, rng: Random
) -> Step:
    """The next step of ``records`` that failed together.

    ``tries``: how often they failed as they are, this time included. ``halved``: they are a part of a batch that
    failed. ``failing_s``: for how long nothing of the shard was settled while everything failed for transient reasons.
    """
    delay_s = full_jitter_s(tries, base_s=retry.base_s, cap_s=retry.cap_s, rng=rng)
    if isinstance(error, retry.transient):
        if retry.give_up_after_s is not None and failing_s >= retry.give_up_after_s:
            return Last(GiveUp(cool_down_s=retry.cool_down_s))
        return Again(delay_s)
    if records > 1 and retry.halve:
        # A half is not tried twice: what was in the way the first time had its chance with the whole batch.
        return Halve(delay_s) if halved or tries >= retry.batch_tries_max else Again(delay_s)
    if retry.tries_max is not None and tries >= retry.tries_max:
        return Last(retry.then)
    return Again(delay_s)
