"""Write events as lines of a log: which event is worth which level, and what the line says.

The table `LINES` has all levels and texts. Events that come often are held back: a kind has one line in a while, which
says how many events it stands for. A kind is an event type, a stream and an error's code or class; it is not a shard,
or a stream of a thousand hot shards would still flood the log. What is held back is written with the next event of any
kind after that while; the exact numbers are in the metrics.
"""

from __future__ import annotations

import datetime as dt
import logging
import math
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec.structs import replace

from shardway import events
from shardway.errors import OptionError
from shardway.model import Position
from shardway.shown import json_of, one_line
from shardway.shown import lines as printable

if TYPE_CHECKING:
    from collections.abc import Callable

KINDS_MAX = 1000
"""The kinds that are held back. Further kinds are not: memory stays bounded, and the log gets longer."""


_NUMBERS = (events.ConsumerMetrics, events.ProducerMetrics, events.QueryMetrics)


class Line(NamedTuple):
    """How one type of event is written."""

    level: int
    text: str
    """The line's text, a format string that names the event's fields."""
    every_s: float = 0.0
    """Seconds in which at most one line of a kind is written; 0: all lines are written."""


OK, INFO, WARNING, ERROR = logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR

LINES: dict[type, Line] = {
    events.PutRecordsDone: Line(
        OK, "PutRecords: {records} records with {user_records} user records, {payload_bytes} bytes, in "
        "{duration_s:.3f} s; {refused} refused, {failed} failed; {in_flight} requests under way",
    ),
    events.RecordsRefused: Line(
        WARNING, "{shard_id} refused {records} records ({error_code}); they are put again", every_s=30
    ),
    events.RecordsExpired: Line(
        ERROR, "{user_records} user records for {shard_id} were not written within their time to live "
        "(may be written all the same: {may_be_written})", every_s=10,
    ),
    events.RecordsFailed: Line(
        ERROR, "{user_records} user records for {shard_id} were given up ({error_code})", every_s=10
    ),
    events.AggregatesRepeated: Line(
        INFO, "{aggregates} aggregates landed on {shard_id}, which does not hold all of them; their {user_records} "
        "user records are put again by shard", every_s=10,
    ),
    events.UnknownOutcome: Line(
        WARNING, "{records} records may have been written or not, and are put again: {reason}", every_s=10
    ),
    events.ShardMapChanged: Line(INFO, "{open_shards} open shards: {added} added, {closed} closed"),
    events.ShardMapFailed: Line(
        WARNING, "the shards could not be listed, tried again in {retry_in_s:.1f} s: {reason}", every_s=10
    ),
    events.PaceChanged: Line(OK, "pace of {shard_id}: {share:.0%} of its limit"),
    events.AggregationOff: Line(WARNING, "aggregation is off: {reason}"),
    events.ProducerMetrics: Line(
        INFO, "in {snapshot.period_s:.0f} s: {snapshot.user_records_put} user records put "
        "({snapshot.records_per_s:.0f}/s), {snapshot.user_records_failed} failed, "
        "{snapshot.user_records_expired} expired, {snapshot.records_refused} refusals, "
        "{snapshot.user_records_pending} pending", every_s=60,
    ),
    events.ConsumerMetrics: Line(
        INFO, "in {snapshot.period_s:.0f} s: {snapshot.records_settled} records settled "
        "({snapshot.records_per_s:.0f}/s), {snapshot.records_fetched} fetched, {snapshot.failures} failures, "
        "{snapshot.records_dead_lettered} dead letters; {shards} shards, the oldest record that is not settled may "
        "have waited for {lag}", every_s=60,
    ),
    events.QueryMetrics: Line(
        INFO, "in {snapshot.period_s:.0f} s: {snapshot.batches} batches, {snapshot.records_read} records "
        "({snapshot.records_per_s:.0f}/s), {snapshot.records_dead_lettered} dead letters, the oldest record that is "
        "not read may have waited for {lag}", every_s=60,
    ),
    events.RecordsStalled: Line(
        WARNING, "{shard_id}: {records} records are not settled after {age_s:.0f} s, the first at {positions[0]} "
        "({waiting} of them wait for a retry or as dead letters); {follows}",
    ),
    events.BatchFailed: Line(
        WARNING, "{shard_id}: the handler failed for {records} records from {position} on, attempt {attempt}: "
        "{error_type} ({error_at}); next: {next_step} in {delay_s:.1f} s", every_s=10,
    ),
    events.RecordDeadLettered: Line(
        WARNING, "{shard_id}: the record at {position} is a dead letter after {failures} failures of its own "
        "({error_type}); it was delivered {attempts} times",
        every_s=10,
    ),
    events.DeadLetterFailed: Line(
        ERROR, "{shard_id}: the dead letter of {position} could not be written ({error_type}), failure {failures}; the "
        "next in {delay_s:.1f} s", every_s=10,
    ),
    events.RecordsSkipped: Line(
        INFO, "{shard_id}: {records} records from {first} to {last} count as settled without a handler: {reason}",
        every_s=10,
    ),
    events.RecordsUnsettled: Line(
        WARNING, "{shard_id}: {records} records were delivered and not settled, the first at {positions[0]}: "
        "{reason}. {advice}",
    ),
    events.LateSettlement: Line(
        INFO, "{shard_id}: {records} records were settled too late: {reason}; they are delivered again", every_s=10
    ),
    events.FetchingHeld: Line(
        WARNING, "{shard_id}: nothing more is fetched for {held_s:.0f} s, as {records} records that take {bytes_held} "
        "bytes are in flight, the oldest at {position}",
    ),
    events.LoopBlocked: Line(
        WARNING, "the event loop was blocked for {seconds:.1f} s by the program's own code{still}: "
        "{effect}. What blocks belongs into a thread, as by asyncio.to_thread",
    ),
    events.StopBegun: Line(INFO, "{signal}: the consumer stops, and hands its shards over"),
    events.StopWaits: Line(
        INFO, "stopping for {since_s:.0f} s: {shards} shards are held and {records} records are in flight{of_shards}; "
        "at most {left_s:.0f} s more",
    ),
    events.HandoffWaits: Line(
        WARNING, "{shard_id} is to be handed over, and waits for {waits_for} for {left_s:.0f} s more at most: "
        "{records} records are in flight, the oldest that is not settled is at {position}",
    ),
    events.ShardGivenUp: Line(
        ERROR, "{shard_id} is left to other workers: this worker takes it no sooner than in {cool_down_s:.0f} s "
        "({reason})",
    ),
    events.DedupeWindowCut: Line(
        WARNING, "{shard_id}: the window of duplicates holds {keys} keys of {key_bytes} bytes, and reaches back only "
        "{window_s:.0f} s", every_s=60,
    ),
    events.DedupeWindowRebuilding: Line(
        INFO, "{shard_id}: the window of duplicates is being read again; {meanwhile}"
    ),
    events.DedupeWindowRebuilt: Line(
        INFO, "{shard_id}: the window of duplicates is known after {duration_s:.2f} s: {keys} keys from {shards} "
        "shards; {delivered_before} records were delivered before",
    ),
    events.DuplicatesLeftOut: Line(
        INFO, "{shard_id}: {records} records from {first} on are duplicates, and left out", every_s=10
    ),
    events.DedupeKeyFailed: Line(
        WARNING, "{shard_id}: the key function of Deduplicate {failure} for the record at {position}, which counts "
        "as no duplicate", every_s=10,
    ),
    events.PendingCheckpointFound: Line(
        WARNING, "{shard_id}: the former owner has prepared a checkpoint at {up_to} and did not commit it; the "
        "choice for it: {choice}",
    ),
    events.TaskFailed: Line(
        WARNING, "{shard_id}: {work} has failed: {error_type} ({error_at}); {what_follows}", every_s=10
    ),
    events.ReadRefused: Line(
        OK, "{shard_id}: a read was refused for the shard's limits; {calls_per_s:.1f} calls/s are left, the next in "
        "{retry_in_s:.1f} s",
    ),
    events.ReadFailed: Line(
        WARNING, "{shard_id}: a read failed, and is tried again in {retry_in_s:.1f} s: {reason}", every_s=10
    ),
    events.CheckpointTrimmed: Line(
        ERROR, "{shard_id}: the checkpoint {position} is older than the retention; reading goes on at {goes_on}; "
        "{loss}",
    ),
    events.AggregatesOutsideRange: Line(
        INFO, "{shard_id}: {aggregates} aggregates hold records of another shard's range; {dropped} user records of "
        "them are left out", every_s=30,
    ),
    events.FanOutLeft: Line(
        WARNING, "{shard_id} is polled for {return_in_s:.0f} s, as its subscription does not work ({reason})",
        every_s=10,
    ),
    events.ShardBegun: Line(INFO, "{shard_id} is read here from now on ({origin}; token {token})"),
    events.ShardLeft: Line(INFO, "{shard_id} is read here no more: {reason} (token {token})"),
    events.KeysIgnored: Line(
        WARNING, "partition keys do not choose the shard (record distribution AUTO): no key has an order"
    ),
    events.FanOutReturned: Line(INFO, "{shard_id} is read by subscription again", every_s=10),
    events.FleetChanged: Line(INFO, "the workers beside this one are: {fleet}"),
    events.LeaseUpkeepFailed: Line(
        WARNING, "leases could not be made or cleaned up ({reason}), tried again in {retry_in_s:.0f} s"
    ),
    events.LeaseTableFailed: Line(
        WARNING, "a call to the lease table failed ({call}), and is tried again; shards whose leases are not renewed "
        "in time are let go: {reason}", every_s=30,
    ),
    events.LeasesBegunAnew: Line(
        WARNING, "{leases} leases were of another stream, and are begun anew for {begun_for}"
    ),
    events.LeaseUnreadable: Line(
        ERROR, "the row {key} cannot be read as a lease, so no worker reads its shard until the row is mended: "
        "{reason}",
    ),
    events.WorkerIdShared: Line(
        ERROR, "another process has the worker id {worker_id}, too: leave worker_id out, or make it unique; the one "
        "that came later gets no shards while the other renews its leases",
    ),
}  # fmt: skip

REQUEST_FAILED = Line(
    WARNING,
    "PutRecords of {records} records failed as a whole after {duration_s:.3f} s: {error_code}; "
    "{in_flight} requests under way",
    every_s=10,
)
"""The line for a `PutRecordsDone` with an error code, in place of the table's line."""
REFUSED_FOR_S = 60.0
"""A shard whose every read is refused for this long is not read: other programs use up its limits."""
READS_REFUSED = Line(
    WARNING,
    "{shard_id}: all reads have been refused for {refused_for_s:.0f} s: other programs use up the shard's limits; "
    "{calls_per_s:.1f} calls/s are left, the next in {retry_in_s:.1f} s",
    every_s=60,
)
"""The line for a `ReadRefused` that has lasted so long, in place of the table's line."""
SHARD_STOPPED = Line(
    ERROR,
    "{shard_id} is stopped: this worker keeps it, and delivers nothing of it until the consumer is started again "
    "({reason})",
)
"""The line for a `ShardGivenUp` by the policy Stop, in place of the table's line."""
STALL_FOLLOWS = {
    "Warn": "nothing else happens",
    "Redeliver": "they are delivered again",
    "DeadLetters": "they become dead letters",
    "Skip": "they count as settled",
    "Stop": "the shard is stopped",
    "GiveUp": "the shard is left to another worker",
}
"""What each policy for records that are late does with them."""


class _KindHistory:
    """One kind's recent past: until when its events are held back, and which were."""

    __slots__ = ("count", "last", "records", "until_s")

    def __init__(self, until_s: float) -> None:
        self.until_s = until_s
        self.count = 0
        self.records = 0
        self.last: events.Event | None = None


def log_events(
    logger: logging.Logger | None = None,
    *,
    lines: str = "text",
    clock_s: Callable[[], float] = time.monotonic,
) -> Callable[[events.Event], None]:
    """Return a subscriber that writes each event as a line: ``Producer("orders", on_event=log_events())``.

    Lines go to ``logger``, by default ``shardway``. With ``lines="json"`` each is a JSON object: ``time``, ``level``,
    ``event``, ``stream``, ``text``, and the fields of the event by their names. ``clock_s`` measures the time between
    lines. Raises OptionError for other lines.
    """
    if lines not in ("text", "json"):
        raise OptionError(f'lines is "text" or "json", not {lines!r}')
    return _EventLog(logging.getLogger("shardway") if logger is None else logger, clock_s, as_json=lines == "json")


class _EventLog:
    """Writes lines, and remembers for each kind what it holds back."""

    def __init__(self, logger: logging.Logger, clock_s: Callable[[], float], *, as_json: bool) -> None:
        self._logger = logger
        self._as_json = as_json
        self._clock_s = clock_s
        self._held_kinds: dict[tuple[type, str, str | None], _KindHistory] = {}
        self._due_s = math.inf  # when the first held event may be written

    def __call__(self, event: events.Event) -> None:
        now_s = self._clock_s()
        if now_s >= self._due_s:
            self._release(now_s)
        line = _line_of(event)
        if not self._logger.isEnabledFor(line.level):
            return
        if not line.every_s:
            self._write(line, event)
            return
        kind = (type(event), event.stream, _told_apart_by(event))
        held = self._held_kinds.get(kind)
        if held is None:
            if len(self._held_kinds) < KINDS_MAX:
                self._hold(kind, now_s + line.every_s)
            self._write(line, event)
        else:
            held.count += 1
            if isinstance(event, _NUMBERS) and isinstance(held.last, _NUMBERS):
                both: Any = held.last.snapshot + event.snapshot  # type: ignore[operator]  # of one kind, as its key says
                event = replace(event, snapshot=both)  # the line covers all of the time since the last one
            held.records += getattr(event, "records", 0) or getattr(event, "user_records", 0)
            held.last = event
            if getattr(event, "last", False):  # no further event would have it written
                self._write(line, event)
                del self._held_kinds[kind]

    def _release(self, now_s: float) -> None:
        """Write the events that were held back long enough, and forget the kinds that were silent meanwhile."""
        due = [(kind, held) for kind, held in self._held_kinds.items() if now_s >= held.until_s]
        for kind, _ in due:
            del self._held_kinds[kind]
        self._due_s = min((held.until_s for held in self._held_kinds.values()), default=math.inf)
        for kind, held in due:
            if held.last is not None:
                line = _line_of(held.last)
                self._hold(kind, now_s + line.every_s)
                of_records = f" with {held.records} records" if held.records else ""
                self._write(line, held.last, f" (one of {held.count} such events{of_records} since the last line)")

    def _hold(self, kind: tuple[type, str, str | None], until_s: float) -> None:
        self._held_kinds[kind] = _KindHistory(until_s)
        self._due_s = min(self._due_s, until_s)

    def _write(self, line: Line, event: events.Event, remark: str = "") -> None:
        shown = _shown_fields(event)
        text = line.text.format(**shown, **_in_words(event))
        text = one_line(f"{event.stream}: {text}") + remark  # it may hold names that others chose
        if self._as_json:
            self._logger.log(line.level, "%s", _json(line.level, event, text, shown))
            return
        message, trace = getattr(event, "message", None), getattr(event, "trace", None)
        if message is not None:
            text += f": {one_line(message)}"
        self._logger.log(line.level, "%s%s", text, "" if trace is None else f"\n{printable(trace.rstrip())}")


def _told_apart_by(event: events.Event) -> str | None:
    """Return what tells two events of one type and stream apart, so that each has its own line."""
    found = (getattr(event, name, None) for name in ("error_code", "error_type", "application"))
    return next((one for one in found if one), None)


def _json(level: int, event: events.Event, text: str, shown: dict[str, object]) -> str:
    """Return the event as one line of JSON."""
    fields = {name: _plain_value(value) for name, value in shown.items()}
    now = dt.datetime.now(dt.UTC).isoformat(timespec="milliseconds")
    head = {"time": now, "level": logging.getLevelName(level), "event": type(event).__name__, "stream": event.stream}
    return json_of({**head, "text": text, **fields}).decode()


def _plain_value(value: object) -> object:
    """Return a value of JSON's types: a snapshot becomes its usual figures."""
    summary = getattr(value, "summary", None)
    if summary is not None:
        return summary()
    return value if isinstance(value, str | int | float | bool | list | None) else str(value)


def _line_of(event: events.Event) -> Line:
    if isinstance(event, events.PutRecordsDone) and event.error_code is not None:
        return REQUEST_FAILED
    if isinstance(event, events.ReadRefused) and event.refused_for_s >= REFUSED_FOR_S:
        return READS_REFUSED
    if isinstance(event, events.ShardGivenUp) and event.action == "Stop":
        return SHARD_STOPPED
    return LINES[type(event)]


def _in_words(event: events.Event) -> dict[str, str]:
    """Return the parts of a line that say in words what a field has as a class's name, a truth value or None."""
    match event:
        case events.RecordsStalled():
            return {"follows": STALL_FOLLOWS.get(event.action, event.action)}
        case events.LoopBlocked():
            return {"still": ", and still is" if event.so_far else ""}
        case events.DedupeWindowRebuilding():
            meanwhile = "nothing is delivered before it is known" if event.waits else "records are delivered meanwhile"
            return {"meanwhile": meanwhile}
        case events.PendingCheckpointFound():
            return {"up_to": "the shard's end" if event.position is None else _place(event.position)}
        case events.CheckpointTrimmed():
            next_one = event.resumes_at
            return {
                "goes_on": "the next record that comes" if next_one is None else _place(next_one),
                "loss": "no record is lost, as the shard was silent"
                if event.surely_nothing_lost
                else "records may be lost",
            }
        case _:
            return {}


def _place(position: Position) -> str:
    return f"{position.sequence_number}/{position.sub_sequence_number}"


def _shown_fields(event: events.Event) -> dict[str, object]:
    """Return the event's fields as a line shows them."""
    shown: dict[str, object] = {name: getattr(event, name) for name in event.__struct_fields__}
    if shown.get("shard_id", "") is None:
        shown["shard_id"] = "all shards" if isinstance(event, events.TaskFailed) else "no known shard"
    for name, value in shown.items():
        if isinstance(value, Position):
            shown[name] = _place(value)
    if isinstance(positions := shown.get("positions"), tuple):
        shown["positions"] = [_place(one) for one in positions]
    if isinstance(event, events.ConsumerMetrics | events.QueryMetrics):
        lag_s = event.snapshot.lag_s
        shown["lag"] = "0 s" if lag_s is None else f"{lag_s:.1f} s"
    if isinstance(event, events.ConsumerMetrics):
        shown["shards"] = len(event.snapshot.shards)
    if isinstance(event, events.StopWaits):
        more = [f"and {rest} more"] if (rest := event.shards - len(event.held)) > 0 and event.held else []
        shown["held"] = list(event.held)
        shown["of_shards"] = f" ({', '.join([*event.held, *more])})" if event.held else ""
    if isinstance(event, events.ShardMapChanged):
        shown |= {"added": len(event.added), "closed": len(event.closed)}
    return shown
