"""The commands of a tenure's checkpoints: what the lease's machine is told, and the answer for a caller that waits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from shardway.core.leases.tenure import events as tenure_events

if TYPE_CHECKING:
    from shardway.errors import CheckpointError


@dataclass(frozen=True, slots=True)
class Answer:
    """The write that a caller asked for last is done; or the error says why it is not known to be."""

    error: CheckpointError | None = None


Command: TypeAlias = tenure_events.StoreCheckpoint | tenure_events.StorePending | Answer
