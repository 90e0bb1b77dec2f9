"""The options of a consumer as arguments. scripts/arguments.py writes them from `ConsumerOptions`."""

from __future__ import annotations

import datetime as dt
from typing import TypedDict

from shardway.core.log.pace import PollingOptions
from shardway.core.shard.duplicates import Deduplicate
from shardway.model import OutsidePolicy, StartingPosition
from shardway.options.consumer import BufferOptions, CheckpointOptions, FanOutOptions, HandoffOptions
from shardway.options.leases import LeaseOptions
from shardway.policies import DeadLetterChoice, OrderPolicy, Retry, SettlingOptions, UnreadablePolicy
from shardway.ports import LeaseTable


class OptionArguments(TypedDict, total=False):
    """The arguments of both consumers that are options, but for ``split``, which their overloads name."""

    starting_position: StartingPosition | str | dt.datetime
    order: OrderPolicy | None
    accept_ignored_keys: bool
    retry: Retry | None
    dead_letters: DeadLetterChoice | None
    deduplicate: Deduplicate | None
    unreadable: UnreadablePolicy
    aggregates_outside_range: OutsidePolicy
    leases: LeaseOptions | LeaseTable
    handoff: HandoffOptions
    checkpoints: CheckpointOptions
    settling: SettlingOptions
    buffer: BufferOptions
    polling: PollingOptions
    fan_out: FanOutOptions | None
    own_thread: bool
