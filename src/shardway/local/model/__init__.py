"""A pure model of Kinesis Data Streams: no network, no threads, no clock of its own."""

from shardway.local.model.consumers import Subscription
from shardway.local.model.limits import Limits
from shardway.local.model.service import KinesisModel
from shardway.local.model.validation import ModelError

__all__ = ["KinesisModel", "Limits", "ModelError", "Subscription"]
