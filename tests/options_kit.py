"""A consumer's options by the names of their fields, whatever their groups; and times that no option sets."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from shardway.core.leases.tenure.times import FAILOVER_S, LeaseTimes
from shardway.options import (
    BufferOptions,
    CheckpointOptions,
    ConsumerOptions,
    HandoffOptions,
    LeaseOptions,
)
from shardway.options.times import WorkerTimes
from shardway.policies import SettlingOptions
from shardway.runtime.consumer.arguments import consumer_options

if TYPE_CHECKING:
    from shardway.core.options.base import Options

GROUPS: dict[str, type[Options]] = {
    "leases": LeaseOptions,
    "handoff": HandoffOptions,
    "checkpoints": CheckpointOptions,
    "settling": SettlingOptions,
    "buffer": BufferOptions,
}
LEASE_TIMES = ("renew_interval_s", "margin_s", "retry_s", "unconfirmed_max_s")
LEDGER = ("repeat_records_max", "full_after_s", "letter_backoff_s", "letter_backoff_max_s")
TIMES = (
    "look_interval_s", "wait_interval_s", "scan_interval_s", "close_grace_s", "kcl_look_interval_s", "warm_bytes_max",
    "subscriptions",
)  # fmt: skip


def arguments_of(leases: Any = None, **given: Any) -> dict[str, Any]:
    """Arguments of a consumer. ``leases``: a table, or options of leases, which the fields are added to."""
    failover_s = given.get("failover_s", leases.failover_s if isinstance(leases, LeaseOptions) else FAILOVER_S)
    lease = {name: given.pop(name) for name in LEASE_TIMES if name in given}
    times = {name: given.pop(name) for name in TIMES if name in given}
    if bounds := {name: given.pop(name) for name in LEDGER if name in given}:
        times["ledger"] = bounds
    if lease:
        times["lease"] = replace(LeaseTimes.of(failover_s), **lease)
    if times:
        given["_times"] = WorkerTimes.of(failover_s, **times)
    own = {} if leases is None else {"table": leases}
    if isinstance(leases, LeaseOptions):
        own = {name: getattr(leases, name) for name in LeaseOptions.__struct_fields__}
    for group, kind in GROUPS.items():
        fields = {
            name: given.pop(name) for name in kind.__struct_fields__ if name in given and name != "connection"
        }  # not the consumer's
        if group == "leases":
            fields = own | fields
        if fields:
            given[group] = kind(**fields)
    return given


def options_of(leases: Any = None, **given: Any) -> ConsumerOptions:
    """The options of a consumer."""
    return consumer_options(arguments_of(leases, **given))
