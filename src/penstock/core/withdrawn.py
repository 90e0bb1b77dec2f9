"""The names that are gone: what is said to a program that still uses one of them. No old name works beside the new one.

One table for all that a user writes. The key is where the name stood: the class (`ConsumerOptions` has the arguments of
`Consumer`), or ``penstock`` for names that were imported. The value says what there is in its place, as the end of a
sentence that begins with the old name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

_FOLLOWS = "is no option any more: it follows from failover_s"
_CONSTANT = "is no option any more: one value suits all programs"

NAMES: dict[str, dict[str, str]] = {
    "penstock": {
        "FanOutTimes": "is FanOutOptions now",
        "HandOut": "is Deliver now",
        "LeaseTableOptions": "is LeaseOptions now, which has the times of leases, too",
        "LocalSettings": "is LocalOptions now",
        "LedgerSettings": "is gone: Consumer has order=, retry=, settling=SettlingOptions() and buffer=BufferOptions()",
        "PollTimes": "is PollingOptions now",
        "StartAt": "is StartingPosition now",
        "WireSettings": "is ConnectionOptions now",
        "WorkerSettings": "is gone: Consumer takes its options itself, in groups (leases=LeaseOptions(...), ...)",
    },
    "penstock.model": {"Shard": "is ListedShard now, as Shard is what a consumer holds"},
    "penstock.pipeline": {"drop_repeats": "is deduplicate_by_stamps now"},
    "ConsumerOptions": {
        "batch_records_max": "is a field of BufferOptions now: buffer=BufferOptions(batch_records_max=...)",
        "buffer_bytes_max": "is a field of BufferOptions now: buffer=BufferOptions(buffer_bytes_max=...)",
        "cadence": "is a field of CheckpointOptions now: checkpoints=CheckpointOptions(cadence=...)",
        "checkpoint_when_told": "is CheckpointOptions.manual now: checkpoints=CheckpointOptions(manual=True)",
        "close_grace_s": _CONSTANT,
        "dead_letter_timeout_s": _CONSTANT,
        "dead_letters_at_once_max": _CONSTANT,
        "drain_deadline_s": "is a field of HandoffOptions now: handoff=HandoffOptions(drain_deadline_s=...)",
        "failover_s": "is a field of LeaseOptions now: leases=LeaseOptions(failover_s=...)",
        "fan_out_consumer": "is FanOutOptions.consumer_name now: fan_out=FanOutOptions(consumer_name=...)",
        "kcl_look_interval_s": _CONSTANT,
        "kcl_report_interval_s": "is a field of LeaseOptions now: leases=LeaseOptions(kcl_report_interval_s=...)",
        "kcl_steal_wait_s": "is a field of HandoffOptions now: handoff=HandoffOptions(kcl_steal_wait_s=...)",
        "leases_max": "is a field of LeaseOptions now: leases=LeaseOptions(leases_max=...)",
        "ledger": "is gone: give order=, retry=, settling=SettlingOptions(...) and buffer=BufferOptions(...)",
        "look_interval_s": _FOLLOWS,
        "margin_s": _FOLLOWS,
        "on_pending": "is a field of CheckpointOptions now: checkpoints=CheckpointOptions(on_pending=...)",
        "other_stream_begins_anew": "is a field of LeaseOptions now: leases=LeaseOptions(...)",
        "outside": "is aggregates_outside_range now",
        "parts_max": _CONSTANT,
        "renew_interval_s": _FOLLOWS,
        "retry_s": _FOLLOWS,
        "scan_interval_s": _FOLLOWS,
        "settings": "is gone: the options are arguments of the consumer, in groups: leases=LeaseOptions(), ...",
        "start_at": "is starting_position now",
        "strategy": "is a field of LeaseOptions now: leases=LeaseOptions(strategy=...)",
        "subscriptions_per_s": "is a field of FanOutOptions now: fan_out=FanOutOptions(subscriptions_per_s=...)",
        "unconfirmed_max_s": _FOLLOWS,
        "upkeep_interval_s": "is a field of LeaseOptions now: leases=LeaseOptions(upkeep_interval_s=...)",
        "wait_interval_s": _CONSTANT,
        "warm_bytes_max": _CONSTANT,
        "warm_deadline_s": "is a field of HandoffOptions now: handoff=HandoffOptions(warm_deadline_s=...)",
        "wire": "is connection now, a ConnectionOptions",
    },
    "Producer": {
        "wire": "is connection now, a ConnectionOptions",
    },
    "ProducerOptions": {
        "metrics_interval_s": "is MetricsOptions.interval_s now: Producer(..., metrics=MetricsOptions(interval_s=...))",
        "metrics_per_shard": "is MetricsOptions.per_shard now: Producer(..., metrics=MetricsOptions(per_shard=True))",
        "record_time_to_live_s": "is record_ttl_s now",
    },
    "PollingOptions": {
        "backoff_max_s": _CONSTANT,
        "calls_per_s_min": _CONSTANT,
        "idle_growth": _CONSTANT,
        "records_max": "is request_records_max now, as in ProducerOptions",
    },
    "FanOutOptions": {
        "again_after_s": "is no option any more: AWS sets this time",
        "backoff_max_s": _CONSTANT,
        "backoff_s": _CONSTANT,
        "bridge_interval_s": _CONSTANT,
        "failures_max": _CONSTANT,
        "renew_after_s": "is no option any more: AWS ends each subscription after 300 s",
        "renew_jitter_s": _CONSTANT,
        "return_after_s": _CONSTANT,
        "silence_max_s": "is no option any more: AWS sends an event each five seconds",
    },
    "Deduplicate": {"skew_s": _CONSTANT},
    "Retry": {
        "batch_tries_max": "is batch_failures_max now",
        "tries_max": "is failures_max now: it counts failures",
    },
    "LeaseOptions": {
        **dict.fromkeys(
            ("look_interval_s", "margin_s", "renew_interval_s", "retry_s", "scan_interval_s", "unconfirmed_max_s"),
            _FOLLOWS,
        ),
        "answer_timeout_s": "is request_timeout_s now, as in ProducerOptions",
        "make_timeout_s": _CONSTANT,
        "wire": "is connection now, a ConnectionOptions",
    },
    "PostgresLeaseTable": {"answer_timeout_s": "is request_timeout_s now"},
    "ConnectionOptions": {
        "answer_bytes_max": _CONSTANT,
        "attempt_timeout_s": "is request_timeout_s now, as in ProducerOptions",
        "http2_ping_interval_s": _CONSTANT,
        "http2_ping_timeout_s": _CONSTANT,
        "http2_streams_max": _CONSTANT,
        "http2_window_bytes": _CONSTANT,
        "keepalive_s": _CONSTANT,
    },
}  # fmt: skip


def withdrawn(place: str, names: Iterable[str]) -> list[str]:
    """What to say of those of the names that were withdrawn from this place, a sentence each."""
    gone = NAMES.get(place, {})
    return [f"{name} {gone[name]}" for name in names if name in gone]


# --- commands, Spark, job files ---------------------------------------------------------------------

FLAGS = {
    "--aggregate": "--aggregation",
    "--bind": "--host",
    "--dynamodb-endpoint": "--dynamodb-endpoint-url",
    "--json": "-o json (where a line is told at a time: -o jsonl)",
    "--neighbour-endpoint": "--neighbour-endpoint-url",
    "--ordered": "--ordered-by-key",
    "--ttl": "--record-ttl",
}
"""Options of commands."""

SPARK_OPTIONS = {"bufferbytes": "bufferBytesMax"}
"""Options of ``format("penstock")``: the old name, in lower case as Spark compares them."""

JOB_FIELDS = {
    ("deduplicate", "within"): "window",
    ("stamps", "within"): "window",
}
"""Fields of job files, with the table that each stands in."""


def is_called(new: str) -> str:
    """What an error says of the name that takes the place of an old one."""
    return f"is called {new} since version 0.2"
