"""The API's model: which members requests have, and their JSON types, bounds, patterns and sets of values.

The constraints are those of the service's public API model, in the words in which the service itself quotes them.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias


class Text(NamedTuple):
    """A string."""

    min_length: int | None = None
    max_length: int | None = None
    pattern: str | None = None
    values: tuple[str, ...] | None = None


class Int32(NamedTuple):
    """An integer of 32 bits."""

    min_value: int | None = None
    max_value: int | None = None


class Flag(NamedTuple):
    """A boolean."""


class Time(NamedTuple):
    """Epoch seconds, with a fraction."""


class Blob(NamedTuple):
    """Bytes, base64 in JSON. Their greatest length is the stream's, not the model's."""


class Items(NamedTuple):
    """A list."""

    member: Rule
    min_length: int | None = None
    max_length: int | None = None
    printed: str | None = None
    """The text for a member of the list in the service's messages; None: the member is shown as it is."""


class Pairs(NamedTuple):
    """A map from text to text: the service's messages name the lengths of its keys and values as one constraint."""

    key: Text
    value: Text
    min_length: int | None = None
    max_length: int | None = None


class Structure(NamedTuple):
    """A structure."""

    rules: dict[str, Rule]
    required: frozenset[str] = frozenset()


Rule: TypeAlias = Text | Int32 | Flag | Time | Blob | Items | Pairs | Structure
NAME = "[a-zA-Z0-9_.-]+"
STREAM_NAME = Text(1, 128, NAME)
STREAM_ARN = Text(1, 2048, r"arn:aws.*:kinesis:.*:\d{12}:stream/\S+")
CONSUMER_ARN = Text(
    1, 2048, r"^(arn):aws.*:kinesis:.*:\d{12}:.*stream\/[a-zA-Z0-9_.-]+\/consumer\/[a-zA-Z0-9_.-]+:[0-9]+"
)
RESOURCE_ARN = Text(1, 2048, r"arn:aws.*:kinesis:.*:\d{12}:.*(stream|channel|queue)/\S+")
STREAM_ID = Text(1, 24, "[a-z0-9]{20}-[a-z0-9]{3}")
SHARD_ID = Text(1, 128, NAME)
HASH_KEY = Text(pattern=r"0|([1-9]\d{0,38})")
SEQUENCE_NUMBER = Text(pattern=r"0|([1-9]\d{0,128})")
PARTITION_KEY = Text(1, 256)
TOKEN = Text(1, 1_048_576)
TAG_KEY = Text(1, 128)
TAG_VALUE = Text(0, 256)
TAG_MAP = Pairs(TAG_KEY, TAG_VALUE, 1, 200)
TAG_KEYS = Items(TAG_KEY, 1, 50)
PAGE = Int32(1, 10_000)
ITERATOR_TYPE = Text(values=("AFTER_SEQUENCE_NUMBER", "LATEST", "AT_TIMESTAMP", "AT_SEQUENCE_NUMBER", "TRIM_HORIZON"))
FILTER_TYPE = Text(
    values=(
        "AFTER_SHARD_ID",
        "AT_TRIM_HORIZON",
        "FROM_TRIM_HORIZON",
        "AT_LATEST",
        "AT_TIMESTAMP",
        "FROM_TIMESTAMP",
    )
)
MODE = Structure({"StreamMode": Text(values=("PROVISIONED", "ON_DEMAND"))}, frozenset({"StreamMode"}))
STRATEGY = Text(values=("AUTO", "USER_PARTITION_KEY"))
RECORD_KIB = Int32(1024, 10_240)
WARM_MIBPS = Int32(0)
METRICS = Items(
    Text(
        values=(
            "IncomingBytes",
            "IncomingRecords",
            "OutgoingBytes",
            "OutgoingRecords",
            "WriteProvisionedThroughputExceeded",
            "ReadProvisionedThroughputExceeded",
            "IteratorAgeMilliseconds",
            "ALL",
        )
    ),
    1,
    7,
)
ENCRYPTION = {"EncryptionType": Text(values=("NONE", "KMS")), "KeyId": Text(1, 2048)}
ENTRY = Structure(
    {"PartitionKey": PARTITION_KEY, "ExplicitHashKey": HASH_KEY, "Data": Blob()},
    frozenset({"PartitionKey", "Data"}),
)
POSITION = Structure(
    {"Type": ITERATOR_TYPE, "SequenceNumber": SEQUENCE_NUMBER, "Timestamp": Time()}, frozenset({"Type"})
)
FILTER = Structure({"Type": FILTER_TYPE, "ShardId": SHARD_ID, "Timestamp": Time()}, frozenset({"Type"}))
_BY_NAME: dict[str, Rule] = {"StreamName": STREAM_NAME, "StreamARN": STREAM_ARN, "StreamId": STREAM_ID}
_BY_ARN: dict[str, Rule] = {"StreamARN": STREAM_ARN, "StreamId": STREAM_ID}
_RESOURCE: dict[str, Rule] = {"ResourceARN": RESOURCE_ARN, "StreamId": STREAM_ID}
_CONSUMER: dict[str, Rule] = _BY_ARN | {"ConsumerName": Text(1, 128, NAME), "ConsumerARN": CONSUMER_ARN}


def _stream(required: str = "", /, **rules: Rule) -> Structure:
    """Return the members of a request that names a stream by name or by ARN: without an ARN the name is required."""
    return Structure(rules | _BY_NAME, frozenset([*required.split(), "StreamName"]))


def _structure(shared: dict[str, Rule], required: str = "", /, **rules: Rule) -> Structure:
    return Structure(rules | shared, frozenset(required.split()))


REQUESTS: dict[str, Structure] = {
    "AddTagsToStream": _stream("Tags", Tags=TAG_MAP),
    "CreateStream": Structure(
        {
            "ShardCount": Int32(1, 100_000),
            "StreamName": STREAM_NAME,
            "StreamModeDetails": MODE,
            "Tags": TAG_MAP,
            "WarmThroughputMiBps": WARM_MIBPS,
            "MaxRecordSizeInKiB": RECORD_KIB,
            "RecordDistributionStrategy": STRATEGY,
        },
        frozenset({"StreamName"}),
    ),
    "DecreaseStreamRetentionPeriod": _stream("RetentionPeriodHours", RetentionPeriodHours=Int32(1)),
    "DeleteResourcePolicy": _structure(_RESOURCE, "ResourceARN"),
    "DeleteStream": _stream(EnforceConsumerDeletion=Flag()),
    "DeregisterStreamConsumer": _structure(_CONSUMER),
    "DescribeAccountSettings": Structure({}),
    "DescribeLimits": Structure({}),
    "DescribeStream": _stream(Limit=PAGE, ExclusiveStartShardId=SHARD_ID),
    "DescribeStreamConsumer": _structure(_CONSUMER),
    "DescribeStreamSummary": _stream(),
    "DisableEnhancedMonitoring": _stream("ShardLevelMetrics", ShardLevelMetrics=METRICS),
    "EnableEnhancedMonitoring": _stream("ShardLevelMetrics", ShardLevelMetrics=METRICS),
    "GetRecords": _structure(_BY_ARN, "ShardIterator", Limit=PAGE, ShardIterator=Text(1, 512), DryRun=Flag()),
    "GetResourcePolicy": _structure(_RESOURCE, "ResourceARN"),
    "GetShardIterator": _stream(
        "ShardId ShardIteratorType",
        ShardId=SHARD_ID,
        ShardIteratorType=ITERATOR_TYPE,
        StartingSequenceNumber=SEQUENCE_NUMBER,
        Timestamp=Time(),
        DryRun=Flag(),
    ),
    "IncreaseStreamRetentionPeriod": _stream("RetentionPeriodHours", RetentionPeriodHours=Int32(1)),
    "ListShards": _structure(
        _BY_NAME,
        MaxResults=PAGE,
        ExclusiveStartShardId=SHARD_ID,
        NextToken=TOKEN,
        StreamCreationTimestamp=Time(),
        ShardFilter=FILTER,
    ),
    "ListStreamConsumers": _structure(
        _BY_ARN, "StreamARN", NextToken=TOKEN, MaxResults=PAGE, StreamCreationTimestamp=Time()
    ),
    "ListStreams": Structure({"Limit": PAGE, "ExclusiveStartStreamName": STREAM_NAME, "NextToken": TOKEN}),
    "ListTagsForResource": _structure(_RESOURCE, "ResourceARN"),
    "ListTagsForStream": _stream(Limit=Int32(1, 50), ExclusiveStartTagKey=TAG_KEY),
    "MergeShards": _stream("ShardToMerge AdjacentShardToMerge", ShardToMerge=SHARD_ID, AdjacentShardToMerge=SHARD_ID),
    "PutRecord": _stream(
        "PartitionKey Data",
        SequenceNumberForOrdering=SEQUENCE_NUMBER,
        PartitionKey=PARTITION_KEY,
        ExplicitHashKey=HASH_KEY,
        Data=Blob(),
        DryRun=Flag(),
    ),
    "PutRecords": _stream(
        "Records",
        Records=Items(ENTRY, 1, 500, "com.amazonaws.kinesis.v20131202.PutRecordsRequestEntry@c965e310"),
        DryRun=Flag(),
    ),
    "PutResourcePolicy": _structure(_RESOURCE, "ResourceARN Policy", Policy=Text()),
    "RegisterStreamConsumer": _structure(
        _BY_ARN, "StreamARN ConsumerName", ConsumerName=Text(1, 128, NAME), Tags=TAG_MAP
    ),
    "RemoveTagsFromStream": _stream("TagKeys", TagKeys=TAG_KEYS),
    "SplitShard": _stream("ShardToSplit NewStartingHashKey", NewStartingHashKey=HASH_KEY, ShardToSplit=SHARD_ID),
    "StartStreamEncryption": _stream("EncryptionType KeyId", **ENCRYPTION),
    "StopStreamEncryption": _stream("EncryptionType KeyId", **ENCRYPTION),
    "SubscribeToShard": Structure(
        {
            "ConsumerARN": CONSUMER_ARN,
            "ShardId": SHARD_ID,
            "StartingPosition": POSITION,
            "StreamId": STREAM_ID,
            "DryRun": Flag(),
        },
        frozenset({"ConsumerARN", "ShardId", "StartingPosition"}),
    ),
    "TagResource": _structure(_RESOURCE, "ResourceARN Tags", Tags=TAG_MAP),
    "UntagResource": _structure(_RESOURCE, "ResourceARN TagKeys", TagKeys=TAG_KEYS),
    "UpdateAccountSettings": Structure(
        {
            "MinimumThroughputBillingCommitment": Structure(
                {"Status": Text(values=("ENABLED", "DISABLED"))}, frozenset({"Status"})
            )
        },
        frozenset({"MinimumThroughputBillingCommitment"}),
    ),
    "UpdateMaxRecordSize": _structure(_BY_ARN, "StreamARN MaxRecordSizeInKiB", MaxRecordSizeInKiB=RECORD_KIB),
    "UpdateShardCount": _stream(
        "TargetShardCount ScalingType",
        TargetShardCount=Int32(1),
        ScalingType=Text(values=("UNIFORM_SCALING",)),
    ),
    "UpdateStreamMode": _structure(
        _BY_ARN, "StreamARN StreamModeDetails", StreamModeDetails=MODE, WarmThroughputMiBps=WARM_MIBPS
    ),
    "UpdateStreamRecordDistributionStrategy": _structure(
        _BY_ARN, "StreamARN RecordDistributionStrategy", RecordDistributionStrategy=STRATEGY
    ),
    "UpdateStreamWarmThroughput": _stream("WarmThroughputMiBps", WarmThroughputMiBps=WARM_MIBPS),
}
"""The members of the request of each operation."""
