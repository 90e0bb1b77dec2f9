"""A pure model of Kinesis Data Streams: no network, no threads, no clock of its own.

Read `service` first, which has the operations, then `state`, which has what they change: `stream`, `shard` and
`shard_log`. `put`, `get` (with `read_places`), `consumers`, `subscriptions`, `streams`, `shard_lists`, `resharding`
(with `scaling`), `settings`, `account`, `tags` and `policies` are the operations. `checking` compares a request with
`requests`, and `errors`, `limits` and `tag_rules` say what is refused. `sequence_numbers`, `tokens` and `times` are
what callers see.
"""

from shardway.local.model.errors import ModelError
from shardway.local.model.limits import Limits
from shardway.local.model.service import KinesisModel
from shardway.local.model.subscriptions import Subscription

__all__ = ["KinesisModel", "Limits", "ModelError", "Subscription"]
