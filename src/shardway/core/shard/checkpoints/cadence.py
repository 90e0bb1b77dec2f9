"""The cadence of a consumer's checkpoints: when they are stored."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, TypeAlias

from msgspec import Meta

from shardway.core.options.base import Options

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True, slots=True)
class Riding:
    """Checkpoints are written only with the renewals of the leases, and when the worker lets a shard go as planned."""


class Every(Options, frozen=True, kw_only=True):
    """Checkpoints are also written when ``records`` records were settled since the last one, or when ``seconds``
    seconds have passed since it and any record was settled.
    """

    records: Annotated[int, Meta(gt=0)] | None = None
    seconds: Annotated[float, Meta(gt=0)] | None = None

    def _rules(self) -> Iterator[str]:
        if self.records is self.seconds is None:
            yield "Every: give records or seconds or both"


@dataclass(frozen=True, slots=True)
class Prompt:
    """Checkpoints also go whenever a record was settled, one write at a time: a crash repeats what is unsettled and
    little else.
    """


Cadence: TypeAlias = Riding | Every | Prompt


def due_at_s(cadence: Cadence, records: int, stored_at_s: float) -> float:
    """Return when a write of its own is due for what is settled and not stored. ``records`` were settled since the last
    checkpoint, which was stored at ``stored_at_s``. Infinity: it is not due before more is settled.
    """
    if isinstance(cadence, Riding):
        return math.inf
    if isinstance(cadence, Prompt) or (cadence.records is not None and records >= cadence.records):
        return -math.inf
    return math.inf if cadence.seconds is None else stored_at_s + cadence.seconds
