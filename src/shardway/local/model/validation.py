"""The errors of the service, and the check of a request against the API's model, in the service's words.

The check makes two passes, as the service does: first the JSON types (SerializationException, for the first wrong one),
then the constraints (ValidationException, for up to ten at once). Members that the model does not know are dropped, and
null means absent.
"""

from __future__ import annotations

import binascii
import re
import unicodedata
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import msgspec

if TYPE_CHECKING:
    from shardway.local.model.service import KinesisModel

# --- errors ---------------------------------------------------------------------------------------


class ModelError(Exception):
    """An error answer of the service.

    ``code`` is AWS's error code without a namespace, ``message`` its text (None: the answer carries no text),
    ``status`` the HTTP status (400, or 500 when the service failed), ``extra`` further members of the answer's body.
    """

    def __init__(
        self, code: str, message: str | None = None, *, status: int = 400, extra: dict[str, Any] | None = None
    ) -> None:
        self.code = code
        self.message = message
        self.status = status
        self.extra = extra or {}
        super().__init__(f"{code}: {message}" if message else code)

    def body(self) -> bytes:
        """Return the JSON body of the answer: ``__type``, ``message`` and what ``extra`` adds.

        A SerializationException's text is in ``Message``: the service's parser writes it, not the service.
        """
        members: dict[str, Any] = {"__type": self.code}
        if self.message is not None:
            members["Message" if self.code == "SerializationException" else "message"] = self.message
        return msgspec.json.encode(members | self.extra)


def invalid(message: str) -> ModelError:
    """Return an InvalidArgumentException: the request is understood, and wrong."""
    return ModelError("InvalidArgumentException", message)


def validation(message: str) -> ModelError:
    """Return a ValidationException: a member breaks a constraint of the API's model, or members contradict each
    other.
    """
    return ModelError("ValidationException", message)


def not_found(message: str) -> ModelError:
    """Return a ResourceNotFoundException."""
    return ModelError("ResourceNotFoundException", message)


def in_use(message: str) -> ModelError:
    """Return a ResourceInUseException: the resource exists already, or is not in a state that allows the call."""
    return ModelError("ResourceInUseException", message)


def limit_exceeded(message: str) -> ModelError:
    """Return a LimitExceededException: a quota, or a call rate of the control plane, is exceeded."""
    return ModelError("LimitExceededException", message)


def serialization(message: str | None = None) -> ModelError:
    """Return a SerializationException: the body is no JSON, or a member has the wrong JSON type."""
    return ModelError("SerializationException", message)


def stream_not_found(name: str, account_id: str) -> ModelError:
    """Return a ResourceNotFoundException for a stream that does not exist."""
    return not_found(f"Stream {name} under account {account_id} not found.")


def shard_not_found(shard_id: str, name: str, account_id: str) -> ModelError:
    """Return a ResourceNotFoundException for a shard that a resharding call or a listing names."""
    return not_found(f"Could not find shard {shard_id} in stream {name} under account {account_id}.")


def shard_absent(shard_id: str, name: str, account_id: str) -> ModelError:
    """Return a ResourceNotFoundException for a shard that a reader names: the data plane words it in another way."""
    return not_found(f"Shard {shard_id} in stream {name} under account {account_id} does not exist")


def dry_run() -> ModelError:
    """Return a DryRunOperationException: the call would have been done, had it not asked to be checked only."""
    return ModelError("DryRunOperationException", "Request would have succeeded, but DryRun flag is set.")


# --- requests -------------------------------------------------------------------------------------
# --- the API's model ------------------------------------------------------------------------------
# The API's model says which members requests have, and their JSON types, bounds, patterns and sets of values.
#
# The constraints are those of the service's public API model, in the words in which the service itself quotes them.


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


def _plain(shared: dict[str, Rule], required: str = "", /, **rules: Rule) -> Structure:
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
    "DeleteResourcePolicy": _plain(_RESOURCE, "ResourceARN"),
    "DeleteStream": _stream(EnforceConsumerDeletion=Flag()),
    "DeregisterStreamConsumer": _plain(_CONSUMER),
    "DescribeAccountSettings": Structure({}),
    "DescribeLimits": Structure({}),
    "DescribeStream": _stream(Limit=PAGE, ExclusiveStartShardId=SHARD_ID),
    "DescribeStreamConsumer": _plain(_CONSUMER),
    "DescribeStreamSummary": _stream(),
    "DisableEnhancedMonitoring": _stream("ShardLevelMetrics", ShardLevelMetrics=METRICS),
    "EnableEnhancedMonitoring": _stream("ShardLevelMetrics", ShardLevelMetrics=METRICS),
    "GetRecords": _plain(_BY_ARN, "ShardIterator", Limit=PAGE, ShardIterator=Text(1, 512), DryRun=Flag()),
    "GetResourcePolicy": _plain(_RESOURCE, "ResourceARN"),
    "GetShardIterator": _stream(
        "ShardId ShardIteratorType",
        ShardId=SHARD_ID,
        ShardIteratorType=ITERATOR_TYPE,
        StartingSequenceNumber=SEQUENCE_NUMBER,
        Timestamp=Time(),
        DryRun=Flag(),
    ),
    "IncreaseStreamRetentionPeriod": _stream("RetentionPeriodHours", RetentionPeriodHours=Int32(1)),
    "ListShards": _plain(
        _BY_NAME,
        MaxResults=PAGE,
        ExclusiveStartShardId=SHARD_ID,
        NextToken=TOKEN,
        StreamCreationTimestamp=Time(),
        ShardFilter=FILTER,
    ),
    "ListStreamConsumers": _plain(
        _BY_ARN, "StreamARN", NextToken=TOKEN, MaxResults=PAGE, StreamCreationTimestamp=Time()
    ),
    "ListStreams": Structure({"Limit": PAGE, "ExclusiveStartStreamName": STREAM_NAME, "NextToken": TOKEN}),
    "ListTagsForResource": _plain(_RESOURCE, "ResourceARN"),
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
    "PutResourcePolicy": _plain(_RESOURCE, "ResourceARN Policy", Policy=Text()),
    "RegisterStreamConsumer": _plain(_BY_ARN, "StreamARN ConsumerName", ConsumerName=Text(1, 128, NAME), Tags=TAG_MAP),
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
    "TagResource": _plain(_RESOURCE, "ResourceARN Tags", Tags=TAG_MAP),
    "UntagResource": _plain(_RESOURCE, "ResourceARN TagKeys", TagKeys=TAG_KEYS),
    "UpdateAccountSettings": Structure(
        {
            "MinimumThroughputBillingCommitment": Structure(
                {"Status": Text(values=("ENABLED", "DISABLED"))}, frozenset({"Status"})
            )
        },
        frozenset({"MinimumThroughputBillingCommitment"}),
    ),
    "UpdateMaxRecordSize": _plain(_BY_ARN, "StreamARN MaxRecordSizeInKiB", MaxRecordSizeInKiB=RECORD_KIB),
    "UpdateShardCount": _stream(
        "TargetShardCount ScalingType",
        TargetShardCount=Int32(1),
        ScalingType=Text(values=("UNIFORM_SCALING",)),
    ),
    "UpdateStreamMode": _plain(
        _BY_ARN, "StreamARN StreamModeDetails", StreamModeDetails=MODE, WarmThroughputMiBps=WARM_MIBPS
    ),
    "UpdateStreamRecordDistributionStrategy": _plain(
        _BY_ARN, "StreamARN RecordDistributionStrategy", RecordDistributionStrategy=STRATEGY
    ),
    "UpdateStreamWarmThroughput": _stream("WarmThroughputMiBps", WarmThroughputMiBps=WARM_MIBPS),
}
"""The members of the request of each operation."""


# --- checking -------------------------------------------------------------------------------------

ERRORS_MAX = 10
WHOLE_MAX = 2**31 - 1
_NUMBER_CLASS = "class com.amazon.coral.value.json.numbers.TruncatingBigNumber"
_NOT_BASE64 = re.compile(r"[^a-zA-Z0-9+/=]|=[^=]")


def check(operation: str, request: Any, *, data_bytes_max: int = 1_048_576, keys_optional: bool = False) -> Any:
    """Check a request, and return it with its types made right. Raises ModelError.

    ``data_bytes_max`` is the longest data that the stream takes; ``keys_optional``: its records need no partition key.
    """
    if not isinstance(request, dict):
        raise serialization()
    rule = REQUESTS[operation]
    typed = _members(request, rule)
    checker = _Checker(data_bytes_max, keys_optional)
    optional = "StreamName" if "StreamARN" in typed and "StreamName" in rule.rules else None
    checker.members("", typed, rule, optional)
    if operation == "CreateStream" and not {"StreamName", "ShardCount"} & typed.keys():
        checker.add("shardCount", None, "Member must not be null")
    checker.finish()
    return typed


# --- JSON types -----------------------------------------------------------------------------------


def _unexpected_container(value: Any) -> ModelError:
    if isinstance(value, list):
        return serialization("Start of list found where not expected")
    return serialization("Start of structure or map found where not expected.")


def _wrong_class(value: Any, article: str, kind: str) -> ModelError:
    if isinstance(value, list | dict):
        return _unexpected_container(value)
    if isinstance(value, bool):
        name = "class java.lang.Boolean"
    elif isinstance(value, int | float):
        name = _NUMBER_CLASS
    else:
        name = "class java.lang.String"
    return serialization(f"{name} can not be converted to {article}{kind}")


def _text(value: Any, rule: Rule) -> str:
    if not isinstance(value, str):
        raise _wrong_class(value, "an ", "String")
    return value


def _whole(value: Any, rule: Rule) -> int:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _wrong_class(value, "an ", "Integer")
    return int(min(value, WHOLE_MAX))


def _flag(value: Any, rule: Rule) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str):
        word = value.upper()
        if word in ("TRUE", "YES", "1"):
            return True
        if word in ("FALSE", "NO", "0"):
            return False
        raise serialization(f"'{word}' can not be converted to an Boolean")
    raise _wrong_class(value, "an ", "Boolean")


def _time(value: Any, rule: Rule) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _wrong_class(value, "", "milliseconds since epoch")
    return float(value)


def _blob(value: Any, rule: Rule) -> str:
    if not isinstance(value, str):
        raise _wrong_class(value, "a ", "Blob")
    wrong = None
    if len(value) % 4:
        wrong = f"Base64 encoded length is expected a multiple of 4 bytes but found: {len(value)}"
    elif match := _NOT_BASE64.search(value):
        wrong = f"Invalid Base64 character: '{match[0][0]}'"
    elif value and binascii.b2a_base64(binascii.a2b_base64(value), newline=False) != value.encode():
        wrong = "Invalid last non-pad Base64 character dectected"
    if wrong:
        raise serialization(f"'{value}' can not be converted to a Blob: {wrong}")
    return value


def _items(value: Any, rule: Items) -> list[Any]:
    if isinstance(value, dict):
        raise _unexpected_container(value)
    if not isinstance(value, list):
        raise serialization("Expected list or null")
    return [_typed(item, rule.member) for item in value]


def _pairs(value: Any, rule: Pairs) -> dict[str, str]:
    if isinstance(value, list):
        raise _unexpected_container(value)
    if not isinstance(value, dict):
        raise serialization("Expected map or null")
    return {key: _text(item, rule.value) for key, item in value.items() if item is not None}


def _members(value: Any, rule: Structure) -> dict[str, Any]:
    if isinstance(value, list):
        raise _unexpected_container(value)
    if not isinstance(value, dict):
        raise serialization("Expected null")
    return {name: _typed(value[name], member) for name, member in rule.rules.items() if value.get(name) is not None}


_TYPES: dict[type, Callable[[Any, Any], Any]] = {
    Text: _text,
    Int32: _whole,
    Flag: _flag,
    Time: _time,
    Blob: _blob,
    Items: _items,
    Pairs: _pairs,
    Structure: _members,
}


def _typed(value: Any, rule: Rule) -> Any:
    return _TYPES[type(rule)](value, rule)


# --- constraints ----------------------------------------------------------------------------------


@lru_cache(maxsize=64)
def _matcher(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.ASCII)


def _lower_first(name: str) -> str:
    return name[:1].lower() + name[1:]


def _length_of_base64(value: str) -> int:
    return len(value) // 4 * 3 - value[-2:].count("=")


class _Checker:
    """Collects what is wrong, in the service's words."""

    def __init__(self, data_bytes_max: int, keys_optional: bool) -> None:
        self._data_bytes_max = data_bytes_max
        self._keys_optional = keys_optional
        self._errors: list[str] = []

    def add(self, path: str, shown: str | None, constraint: str) -> None:
        """Note one broken constraint of the member at ``path``; ``shown`` None: it is absent."""
        if len(self._errors) < ERRORS_MAX:
            value = "null" if shown is None else f"'{shown}'"
            self._errors.append(f"Value {value} at '{path}' failed to satisfy constraint: {constraint}")

    def finish(self) -> None:
        """Raise the ValidationException, if anything is wrong."""
        if self._errors:
            plural = "s" if len(self._errors) > 1 else ""
            raise validation(f"{len(self._errors)} validation error{plural} detected: {'; '.join(self._errors)}")

    def members(self, path: str, value: dict[str, Any], rule: Structure, optional: str | None = None) -> None:
        for name, member in rule.rules.items():
            below = f"{path}.{_lower_first(name)}" if path else _lower_first(name)
            if name in value:
                self._one(below, value[name], member)
            elif name in rule.required and name != optional and not self._may_lack(name):
                self.add(below, None, "Member must not be null")

    def _may_lack(self, name: str) -> bool:
        return name == "PartitionKey" and self._keys_optional

    def _one(self, path: str, value: Any, rule: Rule) -> None:
        match rule:
            case Text():
                self._text(path, value, rule)
            case Int32():
                self._bounds(path, str(value), value, rule.min_value, rule.max_value, "value")
            case Blob():
                length = _length_of_base64(value)
                shown = f"java.nio.HeapByteBuffer[pos=0 lim={length} cap={length}]"
                self._bounds(path, shown, length, None, self._data_bytes_max, "length")
            case Items():
                self._items(path, value, rule)
            case Pairs():
                self._pairs(path, value, rule)
            case Structure():
                self.members(path, value, rule)

    def _bounds(self, path: str, shown: str, measured: int, least: int | None, most: int | None, what: str) -> None:
        if least is not None and measured < least:
            self.add(path, shown, f"Member must have {what} greater than or equal to {least}")
        if most is not None and measured > most:
            self.add(path, shown, f"Member must have {what} less than or equal to {most}")

    def _text(self, path: str, value: str, rule: Text) -> None:
        if rule.values is not None and value not in rule.values:
            self.add(path, value, f"Member must satisfy enum value set: [{', '.join(rule.values)}]")
        if rule.pattern is not None and not _matcher(rule.pattern).fullmatch(value):
            self.add(path, value, f"Member must satisfy regular expression pattern: {rule.pattern}")
        self._bounds(path, value, len(value), rule.min_length, rule.max_length, "length")

    def _items(self, path: str, value: list[Any], rule: Items) -> None:
        shown = f"[{', '.join(rule.printed or str(item) for item in value)}]"
        self._bounds(path, shown, len(value), rule.min_length, rule.max_length, "length")
        if isinstance(rule.member, Text) and rule.member.values is None:
            if not all(_fits(item, rule.member) for item in value):
                self.add(path, shown, f"Member must satisfy constraint: [{_lengths(rule.member)}]")
            return
        for number, item in enumerate(value, 1):
            self._one(f"{path}.{number}.member", item, rule.member)

    def _pairs(self, path: str, value: dict[str, str], rule: Pairs) -> None:
        shown = "{" + ", ".join(f"{key}={item}" for key, item in value.items()) + "}"
        self._bounds(path, shown, len(value), rule.min_length, rule.max_length, "length")
        if not all(_fits(key, rule.key) for key in value):
            self.add(path, shown, f"Map keys must satisfy constraint: [{_lengths(rule.key)}]")
        if not all(_fits(item, rule.value) for item in value.values()):
            self.add(path, shown, f"Map value must satisfy constraint: [{_lengths(rule.value)}]")


def _fits(value: str, rule: Text) -> bool:
    return (rule.min_length or 0) <= len(value) <= (rule.max_length or len(value))


def _lengths(rule: Text) -> str:
    return (
        f"Member must have length less than or equal to {rule.max_length}, "
        f"Member must have length greater than or equal to {rule.min_length}"
    )


# --- tags -----------------------------------------------------------------------------------------

TAGS_MAX = 50
"""The tags of one resource."""

_ALLOWED_SIGNS = frozenset("_.:/=+-@")


def _is_plain(text: str) -> bool:
    """Return True for a text of letters, digits, separators (no tab, no line end) and a few signs."""
    return all(char in _ALLOWED_SIGNS or unicodedata.category(char)[0] in "LNZ" for char in text)


def require_plain(model: KinesisModel, action: str, tags: Iterable[str] | dict[str, str]) -> None:
    """Raise InvalidArgumentException for a key or value with characters that tags may not have.

    The service checks twice: only its second check, which has another text, knows that ``%`` is not allowed.
    """
    texts = [*tags, *tags.values()] if isinstance(tags, dict) else list(tags)
    if not all(_is_plain(text.replace("%", "")) for text in texts):
        raise invalid(
            "Some tags contain invalid characters. Valid characters: "
            "Unicode letters, digits, white space, _ . / = + - % @."
        )
    if not all(_is_plain(text) for text in texts):
        raise invalid(
            f"Failed to {action} under account {model.account_id} because some tags contained illegal characters. "
            "The allowed characters are Unicode letters, white-spaces, '_',',','/','=','+','-','@'."
        )
