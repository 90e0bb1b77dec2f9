"""What the snapshots of consumers, producers and queries share: they add up, and go to JSON and back. The snapshot of
Spark queries stands here, too: there is one for each batch and stream, made of Spark's progress.
"""

from __future__ import annotations

from typing import Any, ClassVar, Self, TypeVar

import msgspec

from shardway.core.histogram import Histogram

S = TypeVar("S", bound=msgspec.Struct)


class Snapshot(msgspec.Struct, kw_only=True):
    """What was counted from ``period_start_s`` to ``period_end_s``."""

    _is_of: ClassVar[str] = ""  # the part that the snapshot is of, for an error
    _rates: ClassVar[tuple[str, ...]] = ()  # the properties that a summary shows beside the fields

    period_start_s: float
    period_end_s: float

    @property
    def period_s(self) -> float:
        """The period's length in seconds."""
        return self.period_end_s - self.period_start_s

    def summary(self) -> dict[str, Any]:
        """Return counts, levels and rates in JSON's types, with the usual figures of each histogram in place of it."""
        shown: dict[str, Any] = {"period_s": self.period_s}
        for name in self.__struct_fields__[2:]:
            value = getattr(self, name)
            shown[name] = value.summary() if isinstance(value, Histogram) else msgspec.to_builtins(value)
        return {**shown, **{name: getattr(self, name) for name in self._rates}}

    def to_dict(self) -> dict[str, Any]:
        """Return the whole snapshot in JSON's types."""
        return {
            name: value.to_dict() if isinstance(value := getattr(self, name), Histogram) else msgspec.to_builtins(value)
            for name in self.__struct_fields__
        }

    @classmethod
    def from_dict(cls, given: dict[str, Any]) -> Self:
        """Return the snapshot that `to_dict` of this version, or of an earlier one, has written. Raises ValueError for
        anything else.
        """
        try:
            return msgspec.convert(given, cls, dec_hook=_histogram)
        except msgspec.ValidationError as fault:
            raise ValueError(f"this is no snapshot of a {cls._is_of}: {fault}") from None


def sum_of_fields(one: S, other: S, **known: Any) -> S:
    """Return a new struct whose every field is the sum of both fields, but for those that are ``known``; dicts add up
    by key.
    """
    summed = dict(known)
    for name in one.__struct_fields__:
        if name not in known:
            a, b = getattr(one, name), getattr(other, name)
            summed[name] = _sum_by_key(a, b) if isinstance(a, dict) else a + b
    return type(one)(**summed)


def _sum_by_key(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """Return the sums by key. A value whose key only one dict has is copied, since a snapshot that a caller has must
    not change with what is still counted. A sum with an empty value is a copy to the last level, which `copy.copy` is
    not.
    """
    return {
        **{key: value + type(value)() for key, value in one.items() if key not in other},
        **{key: value + one[key] if key in one else value + type(value)() for key, value in other.items()},
    }


def _histogram(kind: type, given: Any) -> Any:
    if kind is Histogram:
        return Histogram.from_dict(given)
    raise ValueError(f"{kind.__name__} is not expected here")


LEVELS = ("lag_s", "shards", "shards_unread", "shards_silent", "shards_left_out", "possible_losses")
"""The fields of a `QuerySnapshot` that are levels, and no counts."""


class QuerySnapshot(Snapshot, kw_only=True):
    """What a query read of one stream from ``period_start_s`` to ``period_end_s`` (epoch seconds), and how far it is.

    ``a + b`` covers both periods: counts and the histogram add up, and the later levels count.
    """

    _is_of: ClassVar[str] = "query"
    _rates: ClassVar[tuple[str, ...]] = ("records_per_s",)

    batches: int = 0
    """Batches that were written and committed."""
    records_read: int = 0
    """Records of the committed batches."""
    bytes_read: int = 0
    """Data of these records, without keys, where the query is observed (`shardway.pipeline.observed`); a job always is.
    """
    records_dead_lettered: int = 0
    """Rows that a job wrote as dead letters."""
    records_duplicate: int = 0
    """Rows that the de-duplication of a job removed."""
    records_late: int = 0
    """Rows that a job dropped, as they came later than its watermark allows."""
    aggregates_outside_range: int = 0
    """KPL aggregates with user records outside of their shard's hash range."""

    batch_s: Histogram = msgspec.field(default_factory=Histogram)
    """Seconds from the trigger of a batch to its commit."""

    lag_s: float | None = None
    """How old the oldest record may be that is in no committed batch; None: nothing was read yet. On PySpark 4.0 and
    4.1 it is the time since the cut of the last batch, which also grows where nothing is unread.
    """
    shards: int = 0
    """Shards of which the query keeps a position."""
    shards_unread: int = 0
    """Shards of which the query keeps a position, and that are not read to their ends."""
    shards_silent: int | None = None
    """Shards that cross a silence, for which the cut of all shards waits; None where Spark does not report it (4.0 and
    4.1).
    """
    shards_left_out: int | None = None
    """Shards that cross a silence, for which the cut waits no more; None where Spark does not report it (4.0 and 4.1).
    """
    possible_losses: int = 0
    """Losses, certain or possible, that were passed over since the checkpoint directory was made."""

    def __add__(self, other: QuerySnapshot) -> QuerySnapshot:
        if not isinstance(other, QuerySnapshot):
            return NotImplemented
        later: Any = other if other.period_end_s >= self.period_end_s else self
        return sum_of_fields(
            self,
            other,
            period_start_s=min(self.period_start_s, other.period_start_s),
            period_end_s=later.period_end_s,
            **{name: getattr(later, name) for name in LEVELS},
        )

    @property
    def records_per_s(self) -> float:
        """Records read in a second of the period; 0.0 for an empty period."""
        return self.records_read / self.period_s if self.period_s > 0 else 0.0
