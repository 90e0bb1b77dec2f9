"""The operations of Kinesis Data Streams, as its API of 2013-12-02 lists them, and a call of one."""

from __future__ import annotations

from typing import NamedTuple

SUBSCRIBE = "SubscribeToShard"
OPERATIONS = frozenset(
    [
        "AcknowledgeDeadLetterQueueRecords",
        "AcknowledgeQueueRecords",
        "AddTagsToStream",
        "CreateChannel",
        "CreateQueue",
        "CreateStream",
        "DecreaseStreamRetentionPeriod",
        "DeleteChannel",
        "DeleteQueue",
        "DeleteResourcePolicy",
        "DeleteStream",
        "DeregisterStreamConsumer",
        "DescribeAccountSettings",
        "DescribeChannel",
        "DescribeLimits",
        "DescribeQueue",
        "DescribeStream",
        "DescribeStreamConsumer",
        "DescribeStreamSummary",
        "DisableEnhancedMonitoring",
        "EnableEnhancedMonitoring",
        "GetRecords",
        "GetResourcePolicy",
        "GetShardIterator",
        "IncreaseStreamRetentionPeriod",
        "ListChannels",
        "ListQueues",
        "ListShards",
        "ListStreamConsumers",
        "ListStreams",
        "ListTagsForResource",
        "ListTagsForStream",
        "MergeShards",
        "PutRecord",
        "PutRecords",
        "PutResourcePolicy",
        "ReceiveDeadLetterQueueRecords",
        "ReceiveQueueRecords",
        "RegisterStreamConsumer",
        "RemoveTagsFromStream",
        "RestoreDeadLetterQueueRecords",
        "SplitShard",
        "StartStreamEncryption",
        "StopStreamEncryption",
        "SubscribeToShard",
        "TagResource",
        "UntagResource",
        "UpdateAccountSettings",
        "UpdateChannel",
        "UpdateDeadLetterQueueRecordsVisibility",
        "UpdateMaxRecordSize",
        "UpdateQueue",
        "UpdateQueueRecordsVisibility",
        "UpdateShardCount",
        "UpdateStreamMode",
        "UpdateStreamRecordDistributionStrategy",
        "UpdateStreamWarmThroughput",
    ]
)
"""The operations of the service. Any other name is unknown to it; an operation that only the model lacks has an error
of its own.
"""


class Call(NamedTuple):
    """A request that passed the gate."""

    operation: str
    body: bytes
    """The request's body in JSON, even when the client sent CBOR."""
    cbor: bool
    cors: bytes
    user_agent: bytes
