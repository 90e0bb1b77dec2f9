"""The one table of numbers: what each is called, in Shardway, in OpenTelemetry, in Prometheus and in CloudWatch.

Exporters, the reference page, dashboards and alarms are made from `TABLE`. The names are public: a change breaks
dashboards, and the changelog has to say it.

A number has OpenTelemetry's own name where its conventions for messaging have one; else the name in the KCL's metrics
for OpenTelemetry (``aws.kinesis.client.*``, of KCL 3.5); else one of Shardway's, ``shardway.*``. In CloudWatch it has
the name that the KCL, or the KPL, gives to the same number. A number that neither counts has its own name there where
an alarm needs it; other numbers have none. A borrowed name keeps its unit and its kind.
"""

from __future__ import annotations

from typing import Any

import msgspec

from shardway.telemetry.metrics import (
    ERROR_TYPE,
    EXPECTATION,
    OPERATION,
    ORIGIN,
    CloudWatchName,
    Kind,
    Level,
    Metric,
    Reporter,
)


def _kcl(name: str, operation: str, level: Level, **more: Any) -> CloudWatchName:
    return CloudWatchName(name=name, operation=operation, level=level, **more)


def _kpl(name: str, level: Level = Level.DETAILED, **more: Any) -> CloudWatchName:
    return CloudWatchName(name=name, level=level, **more)


def _own_name(name: str, unit: str = "Count") -> CloudWatchName:
    """Return the name in CloudWatch of a number that alarms need and that neither the KCL nor the KPL counts."""
    return CloudWatchName(name=name, level=Level.SUMMARY, unit=unit)


def _counter(name: str, field: str, unit: str, text: str, **more: Any) -> Metric:
    return Metric(name=name, kind=Kind.COUNTER, unit=unit, help=text, of=Reporter.CONSUMER, field=field, **more)


def _gauge(name: str, field: str, unit: str, text: str, **more: Any) -> Metric:
    return Metric(name=name, kind=Kind.GAUGE, unit=unit, help=text, of=Reporter.CONSUMER, field=field, **more)


def _histogram(name: str, field: str, unit: str, text: str, **more: Any) -> Metric:
    return Metric(name=name, kind=Kind.HISTOGRAM, unit=unit, help=text, of=Reporter.CONSUMER, field=field, **more)


def _of_producer(name: str, kind: Kind, field: str, unit: str, text: str, **more: Any) -> Metric:
    return Metric(name=name, kind=kind, unit=unit, help=text, of=Reporter.PRODUCER, field=field, **more)


def _of_query(name: str, kind: Kind, field: str, unit: str, text: str, **more: Any) -> Metric:
    return Metric(name=name, kind=kind, unit=unit, help=text, of=Reporter.QUERY, field=field, **more)


_SUMMARY, _DETAIL = Level.SUMMARY, Level.DETAILED
_MS: dict[str, Any] = {"unit": "Milliseconds", "factor": 1000.0}
_LEASES: dict[str, Any] = {"by_worker": True}
_CONSUMER = (
    # --- how far -----------------------------------------------------------------------------------
    _gauge(
        "shardway.consumer.lag", "shards", "s",
        "How old the oldest record may be that is not settled; it grows while reads fail and while a handler hangs",
        level="lag_s",
    ),
    _gauge(
        "shardway.consumer.retention.used", "shards", "1",
        "The part of the stream's retention that this age has used: at 1 the record is lost", level="retention_used",
        cloudwatch=(_own_name("shardway.consumer.retention.used", "None"),),
    ),
    _gauge(
        "shardway.consumer.behind", "shards", "s",
        "How far the last successful read was behind the shard's tip", level="millis_behind_latest", factor=0.001,
        cloudwatch=(
            _kcl("MillisBehindLatest", "ProcessTask", _SUMMARY, unit="Milliseconds", factor=1000.0, by_shard=True),
            _kcl("MillisBehindLatest", "ApplicationTracker", _SUMMARY, unit="Milliseconds", factor=1000.0),
        ),
    ),
    _gauge(
        "shardway.consumer.since_read", "shards", "s", "The time since the last successful read", level="since_read_s"
    ),
    _gauge(
        "shardway.consumer.oldest", "shards", "s",
        "The time since the oldest record arrived that is fetched and not settled", level="oldest_unsettled_s",
    ),
    _gauge(
        "shardway.consumer.held", "shards", "{record}", "Records that are fetched and not settled",
        level="records_held", sums=True,
    ),
    _gauge(
        "shardway.consumer.held.size", "shards", "By", "The memory of records that are fetched and not settled",
        level="bytes_held", sums=True,
    ),
    _gauge(
        "shardway.consumer.in_flight", "shards", "{record}", "Records in flight: delivered and not settled",
        level="records_in_flight", sums=True,
    ),
    _gauge(
        "shardway.consumer.in_flight.oldest", "shards", "s",
        "The time since the oldest record in flight was delivered", level="oldest_in_flight_s",
    ),
    # --- records ------------------------------------------------------------------------------------
    _counter("shardway.consumer.fetched", "records_fetched", "{record}", "Records read from the stream"),
    _counter("shardway.consumer.fetched.size", "bytes_fetched", "By", "Data of the records read from the stream"),
    _counter(
        "messaging.client.consumed.messages", "records_delivered", "{message}",
        "Records handed to the program; those that came again are counted again", of_shard="records_delivered",
        cloudwatch=(_kcl("RecordsProcessed", "ProcessTask", _SUMMARY, by_shard=True),),
    ),
    _histogram(
        "aws.kinesis.client.records.size", "batch_bytes", "By", "Data of the records of a batch that is delivered",
        of_shard="bytes_delivered",
        cloudwatch=(_kcl("DataBytesProcessed", "ProcessTask", _SUMMARY, unit="Bytes", by_shard=True),),
    ),
    _counter("shardway.consumer.settled", "records_settled", "{record}", "Records that are done, in whichever way"),
    _counter("shardway.consumer.settled.size", "bytes_settled", "By", "Data of the records that are done"),
    _counter(
        "shardway.consumer.failed", "records_failed", "{record}",
        "Records of batches for which a handler raised, each time anew",
        cloudwatch=(_kcl("RecordsFailedProcessing", "ProcessTask", _SUMMARY),),
    ),
    _counter(
        "shardway.consumer.failed.size", "bytes_failed", "By",
        "Data of the records of batches for which a handler raised, each time anew",
    ),
    _counter(
        "shardway.consumer.failures", "batches_failed", "{batch}", "How often a handler raised", by=ERROR_TYPE,
        of_shard="batches_failed",
    ),
    _counter("shardway.consumer.skipped", "records_skipped", "{record}", "Records settled without being processed"),
    _counter("shardway.consumer.skipped.size", "bytes_skipped", "By", "Data of the records settled without processing"),
    _counter(
        "shardway.consumer.dead_lettered", "records_dead_lettered", "{record}", "Records written as dead letters",
        cloudwatch=(_own_name("shardway.consumer.dead_lettered"),),
    ),
    _counter(
        "shardway.consumer.dead_lettered.size", "bytes_dead_lettered", "By",
        "Data of the records written as dead letters",
    ),
    _counter(
        "shardway.consumer.dead_letters_failed", "dead_letters_failed", "{attempt}",
        "How often a dead letter could not be written",
    ),
    _counter("shardway.consumer.duplicates", "records_duplicate", "{record}", "Records left out as duplicates"),
    _counter(
        "shardway.consumer.duplicates.size", "bytes_duplicate", "By", "Data of the records left out as duplicates"
    ),
    _counter(
        "shardway.consumer.stalled", "records_stalled", "{record}", "Records reported as not settled in time"
    ),
    _counter(
        "shardway.consumer.gaps", "gaps", "{gap}", "How often a checkpoint was older than the retention",
        cloudwatch=(_own_name("shardway.consumer.gaps"),),
    ),
    _histogram(
        "messaging.process.duration", "handler_s", "s", "How long the program had a batch", of_shard="handler_s",
        attributes=((OPERATION, "process"),),
        cloudwatch=(
            _kcl("RecordProcessor.processRecords.Time", "ProcessTask", _SUMMARY, **_MS, by_shard=True),
            _kcl("Time", "ProcessTask", _SUMMARY, **_MS, by_shard=True),
            _kcl("Success", "ProcessTask", _SUMMARY, zeros="batches_failed", zeros_counted=True, by_shard=True),
        ),
    ),
    # --- reading ------------------------------------------------------------------------------------
    _histogram(
        "messaging.client.operation.duration", "fetch_s", "s", "How long a call took", of_shard="fetch_s",
        attributes=((OPERATION, "GetRecords"),),
        cloudwatch=(
            _kcl("KinesisDataFetcher.getRecords.Time", "ProcessTask", _DETAIL, **_MS, by_shard=True),
            _kcl(
                "KinesisDataFetcher.getRecords.Success", "ProcessTask", _DETAIL, zeros="fetches_failed",
                by_shard=True,
            ),
        ),
    ),
    _counter("shardway.consumer.fetches", "fetches", "{page}", "Pages that came, by GetRecords or a subscription"),
    _counter(
        "shardway.consumer.fetches_failed", "fetches_failed", "{call}", "Reads that failed", by=ERROR_TYPE,
        of_shard="fetches_failed",
    ),
    _counter(
        "shardway.consumer.fetches_refused", "fetches_refused", "{call}", "Reads that a shard's limits refused",
        cloudwatch=(_own_name("shardway.consumer.fetches_refused"),),
    ),
    _counter(
        "aws.kinesis.client.expired_iterator", "iterators_expired", "1", "Reads that met an expired iterator",
        cloudwatch=(_kcl("ExpiredIterator", "ProcessTask", _SUMMARY),),
    ),
    # --- leases -------------------------------------------------------------------------------------
    _gauge(
        "aws.kinesis.client.current_leases", "workers", "1", "Leases that this worker holds", level="held", sums=True,
        cloudwatch=(_kcl("CurrentLeases", "RenewAllLeases", _SUMMARY, **_LEASES),),
    ),
    _gauge(
        "aws.kinesis.client.total_leases", "workers", "1", "Leases of shards that are not read to their end",
        level="leases",
        cloudwatch=(
            _kcl("TotalLeases", "LeaseAssignmentManager", _SUMMARY),
            _kcl("TotalLeases", "TakeLeases", _DETAIL, **_LEASES),
        ),
    ),
    _gauge(
        "shardway.leases.free", "workers", "{lease}",
        "Leases that no living worker has, though their shards could be read", level="leases_free",
        cloudwatch=(_own_name("shardway.leases.free"),),
    ),
    _gauge(
        "aws.kinesis.client.workers", "workers", "1", "Workers that have leases", level="workers",
        cloudwatch=(
            _kcl("NumWorkers", "LeaseAssignmentManager", _SUMMARY),
            _kcl("NumWorkers", "TakeLeases", _SUMMARY, **_LEASES),
        ),
    ),
    _counter(
        "aws.kinesis.client.lost_leases", "leases_lost", "1", "Leases that were lost",
        cloudwatch=(_kcl("LostLeases", "RenewAllLeases", _SUMMARY, **_LEASES),),
    ),
    _counter("shardway.leases.begun", "shards_begun", "{shard}", "Shards that this worker began to read", by=ORIGIN),
    _counter("shardway.leases.left", "shards_left", "{shard}", "Shards that this worker reads no more"),
    _counter(
        "shardway.leases.given_up", "shards_given_up", "{shard}",
        "Shards that the policies for failures have stopped or given up",
    ),
    _histogram(
        "aws.kinesis.client.renew_lease.duration", "renewal_ms", "ms",
        "How long a write took that renews leases and stores no checkpoint",
        cloudwatch=(
            _kcl("RenewLease.Time", "RenewAllLeases", _DETAIL, unit="Milliseconds", **_LEASES),
            _kcl("Time", "RenewAllLeases", _SUMMARY, unit="Milliseconds", **_LEASES),
            _kcl("RenewLease.Success", "RenewAllLeases", _DETAIL, zeros="renewals_failed", **_LEASES),
            _kcl("Success", "RenewAllLeases", _SUMMARY, zeros="renewals_failed", **_LEASES),
        ),
    ),
    _counter("shardway.leases.renewals_failed", "renewals_failed", "{call}", "Renewals refused or not answered"),
    _histogram(
        "aws.kinesis.client.update_lease.duration", "checkpoint_ms", "ms", "How long the write of a checkpoint took",
        cloudwatch=(
            _kcl("UpdateLease.Time", "ProcessTask", _DETAIL, unit="Milliseconds"),
            _kcl("UpdateLease.Success", "ProcessTask", _DETAIL, zeros="checkpoints_failed"),
        ),
    ),
    _counter(
        "shardway.consumer.checkpoints_failed", "checkpoints_failed", "{call}", "Checkpoints refused or not answered"
    ),
    _histogram(
        "shardway.consumer.store.duration", "store_s", "s",
        "From the first record that is settled and not stored to the checkpoint that covers it",
    ),
    _counter(
        "shardway.table.failures", "tables_failed", "{call}", "Calls to the lease table that failed", by=ERROR_TYPE,
        cloudwatch=(_own_name("shardway.table.failures"),),
    ),
    _counter(
        "shardway.consumer.tasks_failed", "tasks_failed", "{error}", "Errors of what is done beside the reading"
    ),
)  # fmt: skip
_PRODUCER = (
    _of_producer(
        "messaging.client.sent.messages", Kind.COUNTER, "user_records_put", "{message}",
        "User records that ended: written, or with an error", of_shard="user_records_put",
        cloudwatch=(
            _kpl("UserRecordsPut", _SUMMARY, zeros="user_records_failed user_records_expired", by_shard=True),
        ),
    ),
    _of_producer(
        "messaging.client.sent.messages", Kind.COUNTER, "user_records_failed", "{message}",
        "User records that ended: written, or with an error", attributes=((ERROR_TYPE, "failed"),),
    ),
    _of_producer(
        "messaging.client.sent.messages", Kind.COUNTER, "user_records_expired", "{message}",
        "User records that ended: written, or with an error", attributes=((ERROR_TYPE, "expired"),),
        cloudwatch=(_kpl("UserRecordExpired", _SUMMARY),),
    ),
    _of_producer(
        "shardway.producer.accepted", Kind.COUNTER, "user_records_accepted", "{message}",
        "User records taken into the buffer", cloudwatch=(_kpl("UserRecordsReceived"),),
    ),
    _of_producer(
        "shardway.producer.withdrawn", Kind.COUNTER, "user_records_withdrawn", "{message}",
        "User records taken back before they were sent",
    ),
    _of_producer(
        "shardway.producer.pending", Kind.GAUGE, "user_records_pending", "{message}",
        "User records without an outcome", sums=True, cloudwatch=(_kpl("UserRecordsPending"),),
    ),
    _of_producer(
        "shardway.producer.buffer.size", Kind.GAUGE, "buffer_bytes", "By", "What those count against the buffer",
        sums=True,
    ),
    _of_producer(
        "shardway.producer.put.size", Kind.COUNTER, "user_bytes_put", "By", "Data of the user records written",
        of_shard="user_bytes_put", cloudwatch=(_kpl("UserRecordsDataPut", unit="Bytes", by_shard=True),),
    ),
    _of_producer(
        "shardway.producer.records", Kind.COUNTER, "records_put", "{record}",
        "Records of Kinesis written: an aggregate is one", of_shard="records_put",
        cloudwatch=(_kpl("KinesisRecordsPut", _SUMMARY, zeros="records_failed_attempts", by_shard=True),),
    ),
    _of_producer(
        "shardway.producer.records.size", Kind.COUNTER, "record_bytes_put", "By",
        "Data and keys of the records of Kinesis written", of_shard="record_bytes_put",
        cloudwatch=(_kpl("KinesisRecordsDataPut", unit="Bytes", by_shard=True),),
    ),
    _of_producer(
        "shardway.producer.refused", Kind.COUNTER, "records_refused", "{record}",
        "Records that a shard's limits refused, each time anew", of_shard="records_refused",
        cloudwatch=(_own_name("shardway.producer.refused"),),
    ),
    _of_producer(
        "shardway.producer.attempts_failed", Kind.COUNTER, "records_failed_attempts", "{record}",
        "Records that came back with an error; all but the last attempt are repeated", by=ERROR_TYPE,
        of_shard="records_failed_attempts", cloudwatch=(_kpl("AllErrors", _SUMMARY),),
    ),
    _of_producer(
        "shardway.producer.requests_failed", Kind.COUNTER, "requests_failed", "{call}",
        "Requests that failed as a whole", by=ERROR_TYPE,
    ),
    _of_producer("shardway.producer.aggregates", Kind.COUNTER, "aggregates", "{record}", "Aggregates written"),
    _of_producer(
        "shardway.producer.aggregates_repeated", Kind.COUNTER, "aggregates_repeated", "{record}",
        "Aggregates that landed on a wrong shard, and were put again",
    ),
    _of_producer(
        "shardway.producer.duplicates_possible", Kind.COUNTER, "duplicates_possible", "{message}",
        "User records written that the stream may hold twice",
    ),
    _of_producer(
        "messaging.client.operation.duration", Kind.HISTOGRAM, "request_s", "s", "How long a call took",
        attributes=((OPERATION, "PutRecords"),), cloudwatch=(_kpl("RequestTime", **_MS),),
    ),
    _of_producer(
        "shardway.producer.latency", Kind.HISTOGRAM, "latency_s", "s", "From a put to its outcome, by user record"
    ),
    _of_producer(
        "shardway.producer.buffering.duration", Kind.HISTOGRAM, "buffering_s", "s",
        "From a put to the first request that carries it", cloudwatch=(_kpl("BufferingTime", _SUMMARY, **_MS),),
    ),
    _of_producer(
        "shardway.producer.attempts", Kind.HISTOGRAM, "attempts", "{request}",
        "Requests that carried a user record until its outcome",
    ),
    _of_producer(
        "shardway.producer.record.messages", Kind.HISTOGRAM, "user_records_per_record", "{message}",
        "User records in a record of Kinesis", cloudwatch=(_kpl("UserRecordsPerKinesisRecord"),),
    ),
    _of_producer(
        "shardway.producer.record.size", Kind.HISTOGRAM, "record_bytes", "By", "Data and key of a record of Kinesis"
    ),
    _of_producer(
        "shardway.producer.request.records", Kind.HISTOGRAM, "request_records", "{record}", "Records in a request",
        cloudwatch=(_kpl("KinesisRecordsPerPutRecordsRequest"),),
    ),
    _of_producer(
        "shardway.producer.request.messages", Kind.HISTOGRAM, "request_user_records", "{message}",
        "User records in a request", cloudwatch=(_kpl("UserRecordsPerPutRecordsRequest"),),
    ),
    _of_producer(
        "shardway.producer.request.size", Kind.HISTOGRAM, "request_bytes", "By", "Data and keys of a request's records"
    ),
)  # fmt: skip
_QUERY = (
    _of_query(
        "shardway.consumer.lag", Kind.GAUGE, "lag_s", "s",
        "How old the oldest record may be that is not settled; it grows while reads fail and while a handler hangs",
        cloudwatch=(
            _kcl("MillisBehindLatest", "ProcessTask", _SUMMARY, **_MS),
            _kcl("MillisBehindLatest", "ApplicationTracker", _SUMMARY, **_MS),
        ),
    ),
    _of_query(
        "messaging.client.consumed.messages", Kind.COUNTER, "records_read", "{message}",
        "Records handed to the program; those that came again are counted again",
        cloudwatch=(_kcl("RecordsProcessed", "ProcessTask", _SUMMARY),),
    ),
    _of_query(
        "shardway.consumer.fetched.size", Kind.COUNTER, "bytes_read", "By", "Data of the records read from the stream",
        cloudwatch=(_kcl("DataBytesProcessed", "ProcessTask", _SUMMARY, unit="Bytes"),),
    ),
    _of_query(
        "shardway.consumer.settled", Kind.COUNTER, "records_read", "{record}",
        "Records that are done, in whichever way",
    ),
    _of_query(
        "shardway.consumer.dead_lettered", Kind.COUNTER, "records_dead_lettered", "{record}",
        "Records written as dead letters",
    ),
    _of_query(
        "shardway.consumer.duplicates", Kind.COUNTER, "records_duplicate", "{record}", "Records left out as duplicates"
    ),
    _of_query(
        "messaging.process.duration", Kind.HISTOGRAM, "batch_s", "s", "How long the program had a batch",
        attributes=((OPERATION, "process"),),
        cloudwatch=(
            _kcl("RecordProcessor.processRecords.Time", "ProcessTask", _SUMMARY, **_MS),
            _kcl("Time", "ProcessTask", _SUMMARY, **_MS),
        ),
    ),
    _of_query("shardway.query.batches", Kind.COUNTER, "batches", "{batch}", "Batches that were committed"),
    _of_query(
        "shardway.query.late", Kind.COUNTER, "records_late", "{record}", "Rows dropped, as the watermark was past them"
    ),
    _of_query(
        "shardway.query.dropped", Kind.COUNTER, "records_dropped", "{record}",
        "Rows dropped, as they did not meet an expectation",
    ),
    _of_query(
        "shardway.query.expectation.met", Kind.COUNTER, "expectations_met", "{record}",
        "Rows that met an expectation", by=EXPECTATION,
    ),
    _of_query(
        "shardway.query.expectation.not_met", Kind.COUNTER, "expectations_not_met", "{record}",
        "Rows that did not meet an expectation, whatever became of them", by=EXPECTATION,
        cloudwatch=(_own_name("shardway.query.expectation.not_met"),),
    ),
    _of_query(
        "shardway.query.aggregates_outside_range", Kind.COUNTER, "aggregates_outside_range", "{record}",
        "Aggregates with user records outside of their shard's range",
    ),
    _of_query("shardway.query.shards", Kind.GAUGE, "shards", "{shard}", "Shards whose position a query keeps"),
    _of_query(
        "shardway.query.shards.unread", Kind.GAUGE, "shards_unread", "{shard}",
        "Those of them that are not read to their ends",
    ),
    _of_query(
        "shardway.query.shards.silent", Kind.GAUGE, "shards_silent", "{shard}",
        "Shards that cross a silence, for which the cut of all waits",
    ),
    _of_query(
        "shardway.query.shards.left_out", Kind.GAUGE, "shards_left_out", "{shard}",
        "Shards that cross a silence, for which the cut waits no more",
    ),
    _of_query(
        "shardway.query.possible_losses", Kind.GAUGE, "possible_losses", "{loss}",
        "Losses that were passed over since the checkpoint directory was made",
    ),
)  # fmt: skip
TABLE: tuple[Metric, ...] = (*_CONSUMER, *_PRODUCER, *_QUERY)
"""All numbers. Rows with one name are one metric, with different attributes."""
OF_SHARDS = {
    metric.name: msgspec.structs.replace(metric, name=metric.shard_name, help=f"{metric.help} (of one shard)")
    for metric in TABLE
    if metric.shard_name is not None
}
LOSSES = Metric(
    name="shardway.telemetry.dropped",
    kind=Kind.COUNTER,
    unit="{event}",
    help="Events that an exporter has dropped, as its queue was full or its service did not take them",
    of=Reporter.CONSUMER,
    field="",
)
"""The number that an exporter reports of itself."""
AGE = Metric(
    name="shardway.telemetry.age",
    kind=Kind.GAUGE,
    unit="s",
    help="The time since a consumer or producer told its numbers last: they are as old as that; 0 once it is closed",
    of=Reporter.CONSUMER,
    field="",
)
"""The number that an exporter reports of the numbers that it has."""
