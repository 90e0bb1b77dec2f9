"""The journal of a simulation: the facts in their order, and the rules that were broken."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from shardway.core.leases.checkpoint import Checkpoint
    from shardway.model import Position

FAULTS_MAX = 20
"""The most broken rules that are kept: a run that breaks rules goes on breaking them."""


class BrokenRule(NamedTuple):
    """A rule that was broken."""

    rule: str
    at_s: float
    what: str

    def __str__(self) -> str:
        return f"{self.at_s:.3f} s: {self.rule}: {self.what}"


class Journal:
    """Keeps the facts of one run, and what broke a rule."""

    def __init__(
        self, clock: Callable[[], float], on_note: Callable[[float, tuple[object, ...]], None] | None = None
    ) -> None:
        """``clock`` has the simulation's time in seconds. ``on_note`` hears each fact, in order, to look at a run."""
        self.broken: list[BrokenRule] = []
        self.clock = clock
        self._on_note = on_note
        self._trace = hashlib.blake2b(digest_size=16)

    @property
    def digest(self) -> str:
        """The digest of the facts, which is the same for two runs that took the same steps at the same times."""
        return self._trace.hexdigest()

    def note(self, *facts: object) -> None:
        """Note a fact that two runs of one seed must have in common."""
        self._trace.update(f"{self.clock():.9f} {facts}\n".encode())
        if self._on_note is not None:
            self._on_note(self.clock(), facts)

    def fault(self, rule: str, what: str) -> None:
        """Note that a rule was broken now."""
        self.note(rule, what)
        if len(self.broken) < FAULTS_MAX:
            self.broken.append(BrokenRule(rule, self.clock(), what))


def shown(position: Position) -> str:
    """Return a position as a rule shows it: the digits that differ."""
    return f"…{str(position.sequence_number)[-14:]}/{position.sub_sequence_number}"


def shown_checkpoint(checkpoint: Checkpoint) -> str:
    """Return a checkpoint as a rule shows it."""
    return shown(checkpoint.position) if checkpoint.is_position else checkpoint.text
