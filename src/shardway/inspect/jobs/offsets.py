"""Read the offsets of a query as the streams of a job."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from shardway.inspect.jobs.views import JobStream
from shardway.spark.offsets import OffsetFormatError, StreamOffset, is_initial

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


def stream_of(offset: StreamOffset, at_s: float) -> JobStream:
    """Return what an offset says of its stream."""
    return JobStream(
        stream=offset.stream_arn.rpartition("/")[2],
        lag_s=lag_of(offset, at_s),
        shards=len(offset.shards),
        shards_unread=len(offset.unread()),
        possible_losses=offset.losses,
    )


def lag_of(offset: StreamOffset, at_s: float) -> float | None:
    """Return the seconds since an offset's cut; None where it has none."""
    return max(0.0, at_s - offset.cut_ms / 1000) if offset.cut_ms else None


def offsets_of(texts: Iterable[Any]) -> Iterator[StreamOffset]:
    """Yield the offsets of Shardway's source; what another source has written is passed over."""
    for text in texts:
        try:
            value = msgspec.json.decode(text) if isinstance(text, str) else text
            if isinstance(value, dict) and "arn" in value and not is_initial(value):
                yield StreamOffset.from_dict(value)
        except (msgspec.DecodeError, OffsetFormatError):
            continue
