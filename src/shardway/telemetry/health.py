"""Say whether the process is alive and ready, by the events that come."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from shardway.events import ConsumerMetrics
from shardway.telemetry.points import stream_label

if TYPE_CHECKING:
    from shardway.events.consumer_snapshot import WorkerLevels


SILENCE_MIN_S = 15.0
"""Seconds. A consumer that has reported nothing for three intervals, and for at least this time, is not alive."""
WORKERS_MAX = 1000
PROBLEMS_SHOWN_MAX = 10


class Verdict(NamedTuple):
    """The verdict that a probe gets."""

    good: bool
    problems: tuple[str, ...]


class _KnownWorker(NamedTuple):
    stream: str
    levels: WorkerLevels
    told_s: float
    interval_s: float


class Health:
    """What is known of the consumers of this process. The class is pure: the time is an argument."""

    def __init__(self, unready_after_s: float) -> None:
        self._unready_after_s = unready_after_s
        self._workers: dict[str, _KnownWorker] = {}
        self._failed_workers: dict[tuple[str, str], str] = {}
        self._has_heard = False

    def heard(self, event: ConsumerMetrics | None, now_s: float) -> None:
        """Note the numbers that a consumer has reported; None: a producer, or a query, has reported its numbers."""
        self._has_heard = True
        if event is None:
            return
        part = event.stream, event.application
        for worker, levels in event.snapshot.workers.items():
            if levels.left:
                self._workers.pop(worker, None)
                if levels.failed and len(self._failed_workers) < WORKERS_MAX:
                    self._failed_workers[part] = stream_label(event.stream)
                continue
            self._failed_workers.pop(part, None)  # another consumer is in its place
            if worker in self._workers or len(self._workers) < WORKERS_MAX:
                self._workers[worker] = _KnownWorker(stream_label(event.stream), levels, now_s, event.snapshot.period_s)

    def live(self, now_s: float) -> Verdict:
        """Return whether the loops turn: each consumer reports its numbers, and no error has ended one. The process
        counts as alive before its first consumer has started.
        """
        return _verdict(
            [f"{stream}: an error has ended the consumer" for stream in self._failed_workers.values()]
            + [
                f"{one.stream}: nothing was told for {now_s - one.told_s:.0f} s: the consumer's loop does not turn"
                for one in self._workers.values()
                if now_s - one.told_s > max(SILENCE_MIN_S, 3 * one.interval_s)
            ]
        )

    def ready(self, now_s: float) -> Verdict:
        """Return whether the loops turn, leases are renewed, and reads succeed. A worker that holds no lease is
        ready.
        """
        if not self._has_heard:
            return Verdict(False, ("no consumer and no producer has told its numbers yet",))
        problems = list(self.live(now_s).problems)
        after_s = self._unready_after_s
        for one in self._workers.values():
            since_s = now_s - one.told_s
            renewed_s = one.levels.renewed_ago_s
            if one.levels.shards and (renewed_s is None or renewed_s + since_s > after_s):
                shown = "not yet" if renewed_s is None else f"{renewed_s + since_s:.0f} s ago"
                problems.append(f"{one.stream}: the leases were last renewed {shown}")
            problems += [
                f"{one.stream}, {shard.shard_id}: no read has succeeded for {shard.since_read_s + since_s:.0f} s"
                for shard in one.levels.shards
                if not shard.is_full and shard.since_read_s + since_s > after_s
            ]
        return _verdict(problems)


def _verdict(problems: list[str]) -> Verdict:
    shown = problems[:PROBLEMS_SHOWN_MAX]
    if len(problems) > len(shown):
        shown.append(f"and {len(problems) - len(shown)} more")
    return Verdict(not problems, tuple(shown))
