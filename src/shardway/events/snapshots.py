"""What the snapshots of consumers, producers and queries share: they add up, and go to JSON and back."""

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
