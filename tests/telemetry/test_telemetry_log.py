from __future__ import annotations

import datetime as dt
import json
import logging
import typing
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from shardway import OptionError, events
from shardway.events import AnyEvent, PutRecordsDone, RecordsExpired, RecordsRefused
from shardway.model import Position
from shardway.runtime.producer.meter import ProducerMeter
from shardway.telemetry.log import KINDS_MAX, LINES, log_events
from tests.telemetry.number_kit import consumer_event, producer_event, query_event

METER = ProducerMeter(0.0)
METER.count_accepted(30)
METER.count_put(20, 2000, 0.1, 1)

EXAMPLES: list[tuple[AnyEvent, int, str]] = [
    (
        events.ShardBegun("orders", "shardId-1", 7, "handed over"),
        logging.INFO,
        "orders: shardId-1 is read here from now on (handed over; token 7)",
    ),
    (
        events.ShardLeft("orders", "shardId-1", 7, "the shard has ended"),
        logging.INFO,
        "orders: shardId-1 is read here no more: the shard has ended (token 7)",
    ),
    (
        events.KeysIgnored("orders"),
        logging.WARNING,
        "orders: partition keys do not choose the shard (record distribution AUTO): no key has an order",
    ),
    (
        events.StopBegun("billing", "SIGTERM"),
        logging.INFO,
        "billing: SIGTERM: the consumer stops, and hands its shards over",
    ),
    (
        events.StopWaits("billing", 2, 30, 3.0, 12.0),
        logging.INFO,
        "billing: stopping for 3 s: 2 shards are held and 30 records are in flight; at most 12 s more",
    ),
    (
        events.StopWaits("billing", 3, 30, 3.0, 12.0, ("orders/shardId-2: 20", "orders/shardId-1: 10")),
        logging.INFO,
        "billing: stopping for 3 s: 3 shards are held and 30 records are in flight (orders/shardId-2: 20, "
        "orders/shardId-1: 10, and 1 more); at most 12 s more",
    ),
    (
        query_event(),
        logging.INFO,
        "orders: in 5 s: 1 batches, 20 records (4/s), 2 dead letters, the oldest record that is not read may have "
        "waited for 1.5 s",
    ),
    (
        consumer_event(),
        logging.INFO,
        "orders: in 5 s: 17 records settled (3/s), 20 fetched, 0 failures, 0 dead letters; 2 shards, the oldest record "
        "that is not settled may have waited for 3.0 s",
    ),
    (
        PutRecordsDone("orders", 5, 500, 60_000, 1, 0, 0.0321, None, 7),
        logging.DEBUG,
        "orders: PutRecords: 5 records with 500 user records, 60000 bytes, in 0.032 s; 1 refused, 0 failed; "
        "7 requests under way",
    ),
    (
        RecordsRefused("orders", "shardId-1", 3, "Throttled"),
        logging.WARNING,
        "orders: shardId-1 refused 3 records (Throttled); they are put again",
    ),
    (
        RecordsExpired("orders", None, 3, True),
        logging.ERROR,
        "orders: 3 user records for no known shard were not written within their time to live "
        "(may be written all the same: True)",
    ),
    (
        events.RecordsFailed("orders", "shardId-1", 4, "KMSDisabledException"),
        logging.ERROR,
        "orders: 4 user records for shardId-1 were given up (KMSDisabledException)",
    ),
    (
        events.AggregatesRepeated("orders", "shardId-1", 2, 60),
        logging.INFO,
        "orders: 2 aggregates landed on shardId-1, which does not hold all of them; their 60 user records are put "
        "again by shard",
    ),
    (
        events.UnknownOutcome("orders", 9, "no answer in 60 s"),
        logging.WARNING,
        "orders: 9 records may have been written or not, and are put again: no answer in 60 s",
    ),
    (
        events.ShardMapChanged("orders", 4, ("shardId-3", "shardId-4"), ("shardId-1",)),
        logging.INFO,
        "orders: 4 open shards: 2 added, 1 closed",
    ),
    (
        events.ShardMapFailed("orders", "ListShards: refused", 1.25),
        logging.WARNING,
        "orders: the shards could not be listed, tried again in 1.2 s: ListShards: refused",
    ),
    (events.PaceChanged("orders", "shardId-1", 0.5), logging.DEBUG, "orders: pace of shardId-1: 50% of its limit"),
    (
        events.AggregationOff("orders", "records are spread over all shards"),
        logging.WARNING,
        "orders: aggregation is off: records are spread over all shards",
    ),
    (
        events.ProducerMetrics("orders", METER.snapshot(10.0)),
        logging.INFO,
        "orders: in 10 s: 20 user records put (2/s), 0 failed, 0 expired, 0 refusals, 10 pending",
    ),
    (
        events.RecordsStalled("orders", "s-1", (Position(7), Position(8, 2)), 2, 1, 300.0, "Warn"),
        logging.WARNING,
        "orders: s-1: 2 records are not settled after 300 s, the first at 7/0 (1 of them wait for a retry or as dead "
        "letters); nothing else happens",
    ),
    (
        events.RecordsStalled("orders", "s-1", (Position(7),), 1, 0, 300.0, "Redeliver"),
        logging.WARNING,
        "orders: s-1: 1 records are not settled after 300 s, the first at 7/0 (0 of them wait for a retry or as dead "
        "letters); they are delivered again",
    ),
    (
        events.BatchFailed(
            "orders", "s-1", Position(7), 10, 2, "ValueError", "Halve", 0.25, "billing.py:41, client.py:905"
        ),
        logging.WARNING,
        "orders: s-1: the handler failed for 10 records from 7/0 on, attempt 2: ValueError (billing.py:41, "
        "client.py:905); next: Halve in 0.2 s",
    ),
    (
        events.RecordDeadLettered("orders", "s-1", Position(7, 3), None, 5, "ValueError", 3),
        logging.WARNING,
        "orders: s-1: the record at 7/3 is a dead letter after 3 failures of its own (ValueError); it was delivered 5 "
        "times",
    ),
    (
        events.LoopBlocked("billing", 4.25, True, "leases go on"),
        logging.WARNING,
        "billing: the event loop was blocked for 4.2 s by the program's own code, and still is: leases go on. What "
        "blocks belongs into a thread, as by asyncio.to_thread",
    ),
    (
        events.LoopBlocked("billing", 4.25, False, "leases go on"),
        logging.WARNING,
        "billing: the event loop was blocked for 4.2 s by the program's own code: leases go on. What blocks belongs "
        "into a thread, as by asyncio.to_thread",
    ),
    (
        events.HandoffWaits("orders", "s-1", "handlers", 12, Position(7), 9.0),
        logging.WARNING,
        "orders: s-1 is to be handed over, and waits for handlers for 9 s more at most: 12 records are in flight, "
        "the oldest that is not settled is at 7/0",
    ),
    (
        events.DeadLetterFailed("orders", "s-1", Position(7), "OSError", 2, 1.5),
        logging.ERROR,
        "orders: s-1: the dead letter of 7/0 could not be written (OSError), failure 2; the next in 1.5 s",
    ),
    (
        events.RecordsSkipped("orders", "s-1", Position(7), Position(9), 3, "latest wins"),
        logging.INFO,
        "orders: s-1: 3 records from 7/0 to 9/0 count as settled without a handler: latest wins",
    ),
    (
        events.RecordsUnsettled("orders", "s-1", (Position(7),), 1, "the shard was handed over", "They come again."),
        logging.WARNING,
        "orders: s-1: 1 records were delivered and not settled, the first at 7/0: the shard was handed over. "
        "They come again.",
    ),
    (
        events.LateSettlement("orders", "s-1", 4, "the lease was lost: taken"),
        logging.INFO,
        "orders: s-1: 4 records were settled too late: the lease was lost: taken; they are delivered again",
    ),
    (
        events.FetchingHeld("orders", "s-1", 100, 2048, Position(7), 6.0),
        logging.WARNING,
        "orders: s-1: nothing more is fetched for 6 s, as 100 records that take 2048 bytes are in flight, "
        "the oldest at 7/0",
    ),
    (
        events.ShardGivenUp("orders", "s-1", "GiveUp", "failed", 60.0),
        logging.ERROR,
        "orders: s-1 is left to other workers: this worker takes it no sooner than in 60 s (failed)",
    ),
    (
        events.ShardGivenUp("orders", "s-1", "Stop", "failed: ValueError", 0.0),
        logging.ERROR,
        "orders: s-1 is stopped: this worker keeps it, and delivers nothing of it until the consumer is started again "
        "(failed: ValueError)",
    ),
    (
        events.DedupeWindowCut("orders", "s-1", 1000, 5000, 12.0),
        logging.WARNING,
        "orders: s-1: the window of duplicates holds 1000 keys of 5000 bytes, and reaches back only 12 s",
    ),
    (
        events.ReadRefused("orders", "s-1", 2.5, 0.3),
        logging.DEBUG,
        "orders: s-1: a read was refused for the shard's limits; 2.5 calls/s are left, the next in 0.3 s",
    ),
    (
        events.ReadRefused("orders", "s-1", 0.2, 5.0, 59.9),
        logging.DEBUG,
        "orders: s-1: a read was refused for the shard's limits; 0.2 calls/s are left, the next in 5.0 s",
    ),
    (
        events.ReadRefused("orders", "s-1", 0.2, 5.0, 60.0),
        logging.WARNING,
        "orders: s-1: all reads have been refused for 60 s: other programs use up the shard's limits; 0.2 calls/s are "
        "left, the next in 5.0 s",
    ),
    (
        events.ReadFailed("orders", "s-1", "InternalFailure", 0.5, "GetRecords: InternalFailure: no message"),
        logging.WARNING,
        "orders: s-1: a read failed, and is tried again in 0.5 s: GetRecords: InternalFailure: no message",
    ),
    (
        events.CheckpointTrimmed("orders", "s-1", Position(7), Position(90), False),
        logging.ERROR,
        "orders: s-1: the checkpoint 7/0 is older than the retention; reading goes on at 90/0; records may be lost",
    ),
    (
        events.CheckpointTrimmed("orders", "s-1", Position(7), None, True),
        logging.ERROR,
        "orders: s-1: the checkpoint 7/0 is older than the retention; reading goes on at the next record that comes; "
        "no record is lost, as the shard was silent",
    ),
    (
        events.AggregatesOutsideRange("orders", "s-1", 2, 30),
        logging.INFO,
        "orders: s-1: 2 aggregates hold records of another shard's range; 30 user records of them are left out",
    ),
    (
        events.FanOutLeft("orders", "s-1", "ResourceInUseException", 60.0),
        logging.WARNING,
        "orders: s-1 is polled for 60 s, as its subscription does not work (ResourceInUseException)",
    ),
    (events.FanOutReturned("orders", "s-1"), logging.INFO, "orders: s-1 is read by subscription again"),
    (events.FleetChanged("billing", "kcl 2.x"), logging.INFO, "billing: the workers beside this one are: kcl 2.x"),
    (
        events.LeaseUpkeepFailed("billing", "AccessDeniedException", 60.0),
        logging.WARNING,
        "billing: leases could not be made or cleaned up (AccessDeniedException), tried again in 60 s",
    ),
    (
        events.LeaseTableFailed("billing", "write", "AccessDeniedException", "UpdateItem: AccessDeniedException: no"),
        logging.WARNING,
        "billing: a call to the lease table failed (write), and is tried again; shards whose leases are not renewed in "
        "time are let go: UpdateItem: AccessDeniedException: no",
    ),
    (
        events.LeasesBegunAnew("billing", "orders", 4),
        logging.WARNING,
        "billing: 4 leases were of another stream, and are begun anew for orders",
    ),
    (
        events.LeaseUnreadable("billing", "shardId-000000000003", "leaseCounter is text"),
        logging.ERROR,
        "billing: the row shardId-000000000003 cannot be read as a lease, so no worker reads its shard until the row "
        "is mended: leaseCounter is text",
    ),
    (
        events.WorkerIdShared("billing", "one"),
        logging.ERROR,
        "billing: another process has the worker id one, too: leave worker_id out, or make it unique; the one that "
        "came later gets no shards while the other renews its leases",
    ),
    (
        events.TaskFailed("orders", None, "asking for its retention", "KeyError", "streams.py:41", "it is asked again"),
        logging.WARNING,
        "orders: all shards: asking for its retention has failed: KeyError (streams.py:41); it is asked again",
    ),
    (
        events.DedupeWindowRebuilding("orders", "s-1", waits=True),
        logging.INFO,
        "orders: s-1: the window of duplicates is being read again; nothing is delivered before it is known",
    ),
    (
        events.DedupeWindowRebuilding("orders", "s-1", waits=False),
        logging.INFO,
        "orders: s-1: the window of duplicates is being read again; records are delivered meanwhile",
    ),
    (
        events.DedupeWindowRebuilt("orders", "s-1", 40, 3, 0.5, 0),
        logging.INFO,
        "orders: s-1: the window of duplicates is known after 0.50 s: 40 keys from 3 shards; 0 records were delivered "
        "before",
    ),
    (
        events.DuplicatesLeftOut("orders", "s-1", 2, Position(7, 1)),
        logging.INFO,
        "orders: s-1: 2 records from 7/1 on are duplicates, and left out",
    ),
    (
        events.DedupeKeyFailed("orders", "s-1", Position(7), "KeyError", "raised KeyError (billing.py:41)"),
        logging.WARNING,
        "orders: s-1: the key function of Deduplicate raised KeyError (billing.py:41) for the record at 7/0, which "
        "counts as no duplicate",
    ),
    (
        events.PendingCheckpointFound("orders", "s-1", Position(7), "keep"),
        logging.WARNING,
        "orders: s-1: the former owner has prepared a checkpoint at 7/0 and did not commit it; the choice for it: keep",
    ),
    (
        events.PendingCheckpointFound("orders", "s-1", None, "abandon"),
        logging.WARNING,
        "orders: s-1: the former owner has prepared a checkpoint at the shard's end and did not commit it; the choice "
        "for it: abandon",
    ),
]


class Log:
    """The event log under test, at a time that the test sets."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        self.now_s = 1000.0
        self.caplog = caplog
        caplog.set_level(logging.DEBUG, logger="shardway")
        self.write = log_events(clock_s=lambda: self.now_s)

    def lines(self) -> list[str]:
        """What was written since the last call."""
        lines = [record.getMessage() for record in self.caplog.records]
        self.caplog.clear()
        return lines


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> Log:
    return Log(caplog)


def test_every_event_has_its_line_and_an_example() -> None:
    everything = set(typing.get_args(AnyEvent))
    assert set(LINES) == everything
    assert {type(event) for event, _, _ in EXAMPLES} == everything


@pytest.mark.parametrize(("event", "level", "text"), EXAMPLES, ids=lambda value: type(value).__name__)
def test_an_event_is_a_line(log: Log, event: AnyEvent, level: int, text: str) -> None:
    log.write(event)
    assert [(record.levelno, record.name) for record in log.caplog.records] == [(level, "shardway")]
    assert log.lines() == [text]


def test_a_request_that_failed_as_a_whole_is_a_warning(log: Log) -> None:
    log.write(PutRecordsDone("orders", 5, 5, 100, 0, 5, 0.2, "TransportError", 0))
    assert [record.levelno for record in log.caplog.records] == [logging.WARNING]
    assert log.lines() == [
        "orders: PutRecords of 5 records failed as a whole after 0.200 s: TransportError; 0 requests under way"
    ]


def test_the_numbers_of_the_time_between_two_lines_are_added_up(log: Log) -> None:
    for _ in range(14):
        log.write(consumer_event())
        log.now_s += 5.0
    lines = log.lines()
    assert len(lines) == 2
    assert "17 records settled" in lines[0]
    assert "187 records settled" in lines[1]


def test_a_producer_that_is_closed_tells_at_once_what_was_held_back(log: Log) -> None:
    for last in (False, False, False, True):
        log.write(replace(producer_event(), last=last))
        log.now_s += 5.0
    first, rest = log.lines()
    assert "8 user records put" in first
    assert "24 user records put" in rest
    log.now_s += 100.0
    log.write(events.KeysIgnored("orders"))
    assert len(log.lines()) == 1, "the same is told twice"


def test_applications_of_one_stream_have_lines_of_their_own(log: Log) -> None:
    for application in ("billing", "billing", "audit", "audit"):
        log.write(consumer_event(application=application))
    assert len(log.lines()) == 2


def test_lines_of_json_have_the_fields_of_the_event(caplog: pytest.LogCaptureFixture) -> None:
    write = log_events(lines="json")
    with caplog.at_level(logging.DEBUG, "shardway"):
        for event, _, _ in EXAMPLES:
            write(event)
    for (event, level, text), record in zip(EXAMPLES, caplog.records, strict=True):
        told = json.loads(record.getMessage())
        assert (told["level"], told["event"]) == (logging.getLevelName(level), type(event).__name__)
        assert told["text"].startswith(text[:20])
        assert set(event.__struct_fields__) <= set(told)
        assert dt.datetime.fromisoformat(told["time"]).tzinfo is not None
    with pytest.raises(OptionError, match='lines is "text" or "json"'):
        log_events(lines="xml")


def test_the_message_of_a_handlers_error_is_told_where_it_is_asked_for(log: Log) -> None:
    failed = events.BatchFailed("orders", "s", Position(7, 0), 3, 1, "KeyError", "Again", 0.5, "billing.py:41")
    log.write(msgspec.structs.replace(failed, message="'customer\n7'", trace="Traceback ...\nKeyError: 'customer'\n"))
    (line,) = log.lines()
    first, _, rest = line.partition("\n")
    assert first.endswith("next: Again in 0.5 s: 'customer\\n7'")
    assert rest == "Traceback ...\nKeyError: 'customer'"


def test_refusals_do_not_flood(log: Log) -> None:
    for number in range(1000):
        log.now_s += 0.1
        log.write(RecordsRefused("orders", f"shardId-{number % 50}", 2, "Throttled"))
    lines = log.lines()
    assert len(lines) == 4  # 100 s, one line in 30 s
    assert lines[0] == "orders: shardId-0 refused 2 records (Throttled); they are put again"
    assert "one of 299 such events with 598 records since the last line" in lines[1]


def test_what_was_held_back_is_written_with_the_next_event_of_any_kind(log: Log) -> None:
    for _ in range(3):
        log.write(RecordsExpired("orders", "shardId-1", 5, False))
    assert len(log.lines()) == 1
    log.now_s += 11
    log.write(events.PaceChanged("orders", "shardId-1", 1.0))
    held, pace = log.lines()
    assert held.endswith("(one of 2 such events with 10 records since the last line)")
    assert pace.endswith("100% of its limit")
    log.now_s += 11
    log.write(events.PaceChanged("orders", "shardId-1", 1.0))
    assert len(log.lines()) == 1, "the same is told twice"
    log.write(RecordsExpired("orders", "shardId-1", 5, False))
    assert log.lines()[0].endswith("(may be written all the same: False)")


def test_streams_and_error_codes_are_held_back_apart(log: Log) -> None:
    for stream in ("orders", "clicks"):
        for code in ("A", "B", "A"):
            log.write(RecordsRefused(stream, "shardId-1", 1, code))
    assert [line.split(":")[0] + line[-24:] for line in log.lines()] == [
        "orders (A); they are put again",
        "orders (B); they are put again",
        "clicks (A); they are put again",
        "clicks (B); they are put again",
    ]


def test_memory_is_bounded_whatever_the_codes(log: Log) -> None:
    for number in range(KINDS_MAX + 5):
        log.write(RecordsRefused("orders", "shardId-1", 1, f"code-{number}"))
    write: Any = log.write
    assert len(write._held_kinds) == KINDS_MAX
    assert len(log.lines()) == KINDS_MAX + 5


def test_a_level_that_is_off_costs_no_line_and_is_not_held_back(log: Log) -> None:
    logging.getLogger("shardway").setLevel(logging.ERROR)
    log.write(RecordsRefused("orders", "shardId-1", 1, "A"))
    assert log.lines() == []
    logging.getLogger("shardway").setLevel(logging.DEBUG)
    log.write(RecordsRefused("orders", "shardId-1", 1, "A"))
    assert len(log.lines()) == 1


def test_another_logger(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="mine"):
        log_events(logging.getLogger("mine"))(events.ShardMapChanged("orders", 1, ("shardId-0",), ()))
    assert [record.name for record in caplog.records] == ["mine"]


def test_events_do_not_change() -> None:
    event = RecordsRefused("orders", "shardId-1", 1, "A")
    with pytest.raises(AttributeError):
        event.records = 2  # type: ignore[misc]
