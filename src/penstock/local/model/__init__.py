"""A pure model of Kinesis Data Streams: no network, no threads, no clock of its own."""

from penstock.local.model.consumers import Subscription
from penstock.local.model.limits import Limits
from penstock.local.model.service import KinesisModel
from penstock.local.model.validation import ModelError

__all__ = ["KinesisModel", "Limits", "ModelError", "Subscription"]
