"""What each call may carry. Members that are not here are dropped, as AWS drops those that it does not know."""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec
from msgspec import Struct

Values: TypeAlias = dict[str, dict[str, Any]]
"""Typed values, not checked yet, by the names of attributes or of places."""
Filters: TypeAlias = dict[str, dict[str, Any]]
"""Conditions older than expressions, by the attribute."""


class TableCall(Struct, rename="pascal"):
    """A call about one table."""

    table_name: str | None = None


class Conditional(TableCall, rename="pascal"):
    """A call with expressions."""

    expression_attribute_names: dict[str, str] | None = None
    expression_attribute_values: dict[str, Any] | None = None
    return_consumed_capacity: str | None = None


class Write(Conditional, rename="pascal"):
    """A write of one item."""

    condition_expression: str | None = None
    expected: Filters | None = None
    conditional_operator: str | None = None
    return_values: str | None = None
    return_values_on_condition_check_failure: str | None = None
    return_item_collection_metrics: str | None = None


class Put(Write, rename="pascal"):
    """PutItem."""

    item: dict[str, Any] | None = None


class Delete(Write, rename="pascal"):
    """DeleteItem, and ConditionCheck in a transaction."""

    key: dict[str, Any] | None = None


class Update(Write, rename="pascal"):
    """UpdateItem."""

    key: dict[str, Any] | None = None
    update_expression: str | None = None
    attribute_updates: Filters | None = None


class Get(Conditional, rename="pascal"):
    """GetItem."""

    key: dict[str, Any] | None = None
    consistent_read: bool | None = None
    projection_expression: str | None = None
    attributes_to_get: list[str] | None = None


class Read(Conditional, rename="pascal"):
    """What Query and Scan have in common."""

    index_name: str | None = None
    consistent_read: bool | None = None
    limit: int | None = None
    exclusive_start_key: dict[str, Any] | None = None
    select: str | None = None
    filter_expression: str | None = None
    projection_expression: str | None = None
    attributes_to_get: list[str] | None = None
    conditional_operator: str | None = None


class Query(Read, rename="pascal"):
    """Query."""

    key_condition_expression: str | None = None
    key_conditions: Filters | None = None
    query_filter: Filters | None = None
    scan_index_forward: bool | None = None


class Scan(Read, rename="pascal"):
    """Scan."""

    scan_filter: Filters | None = None
    segment: int | None = None
    total_segments: int | None = None


class KeysToGet(Struct, rename="pascal"):
    """The keys that a BatchGetItem wants of one table."""

    keys: list[dict[str, Any]] | None = None
    consistent_read: bool | None = None
    projection_expression: str | None = None
    attributes_to_get: list[str] | None = None
    expression_attribute_names: dict[str, str] | None = None


class BatchGet(Struct, rename="pascal"):
    """BatchGetItem."""

    request_items: dict[str, KeysToGet] | None = None
    return_consumed_capacity: str | None = None


class PutInBatch(Struct, rename="pascal"):
    """An item to put."""

    item: dict[str, Any] | None = None


class DeleteInBatch(Struct, rename="pascal"):
    """The key of an item to delete."""

    key: dict[str, Any] | None = None


class WriteInBatch(Struct, rename="pascal"):
    """One write of a BatchWriteItem."""

    put_request: PutInBatch | None = None
    delete_request: DeleteInBatch | None = None


class BatchWrite(Struct, rename="pascal"):
    """BatchWriteItem."""

    request_items: dict[str, list[WriteInBatch]] | None = None
    return_consumed_capacity: str | None = None


class WriteInTransaction(Struct, rename="pascal"):
    """One write of a TransactWriteItems; exactly one member is given."""

    condition_check: Delete | None = None
    put: Put | None = None
    delete: Delete | None = None
    update: Update | None = None


class TransactWrite(Struct, rename="pascal"):
    """TransactWriteItems."""

    transact_items: list[WriteInTransaction] | None = None
    client_request_token: str | None = None
    return_consumed_capacity: str | None = None


class GetInTransaction(Struct, rename="pascal"):
    """One read of a TransactGetItems."""

    get: Get | None = None


class TransactGet(Struct, rename="pascal"):
    """TransactGetItems."""

    transact_items: list[GetInTransaction] | None = None
    return_consumed_capacity: str | None = None


class KeyPart(Struct, rename="pascal"):
    """One attribute of a key."""

    attribute_name: str | None = None
    key_type: str | None = None


class Definition(Struct, rename="pascal"):
    """The type of an attribute that is in a key."""

    attribute_name: str | None = None
    attribute_type: str | None = None


class Throughput(Struct, rename="pascal"):
    """The units per second that are paid for."""

    read_capacity_units: int | None = None
    write_capacity_units: int | None = None


class ProjectionAsked(Struct, rename="pascal"):
    """What an index projects."""

    projection_type: str | None = None
    non_key_attributes: list[str] | None = None


class IndexAsked(Struct, rename="pascal"):
    """An index to make."""

    index_name: str | None = None
    key_schema: list[KeyPart] | None = None
    projection: ProjectionAsked | None = None
    provisioned_throughput: Throughput | None = None


class Tag(Struct, rename="pascal"):
    """A tag."""

    key: str | None = None
    value: str | None = None


class StreamAsked(Struct, rename="pascal"):
    """A stream of changes, which this service does not have."""

    stream_enabled: bool | None = None


class CreateTable(TableCall, rename="pascal"):
    """CreateTable."""

    key_schema: list[KeyPart] | None = None
    attribute_definitions: list[Definition] | None = None
    billing_mode: str | None = None
    provisioned_throughput: Throughput | None = None
    global_secondary_indexes: list[IndexAsked] | None = None
    local_secondary_indexes: list[IndexAsked] | None = None
    stream_specification: StreamAsked | None = None
    tags: list[Tag] | None = None
    deletion_protection_enabled: bool | None = None
    table_class: str | None = None


class IndexUpdate(Struct, rename="pascal"):
    """A change of one index; exactly one member is given."""

    create: IndexAsked | None = None
    update: IndexAsked | None = None
    delete: IndexAsked | None = None


class UpdateTable(TableCall, rename="pascal"):
    """UpdateTable."""

    attribute_definitions: list[Definition] | None = None
    billing_mode: str | None = None
    provisioned_throughput: Throughput | None = None
    global_secondary_index_updates: list[IndexUpdate] | None = None
    stream_specification: StreamAsked | None = None
    replica_updates: list[dict[str, Any]] | None = None
    deletion_protection_enabled: bool | None = None
    table_class: str | None = None


class ListTables(Struct, rename="pascal"):
    """ListTables."""

    exclusive_start_table_name: str | None = None
    limit: int | None = None


class Tagging(Struct, rename="pascal"):
    """TagResource, UntagResource and ListTagsOfResource."""

    resource_arn: str | None = None
    tags: list[Tag] | None = None
    tag_keys: list[str] | None = None
    next_token: str | None = None


class TimeToLiveAsked(Struct, rename="pascal"):
    """Whether rows end at a time that an attribute has."""

    attribute_name: str | None = None
    enabled: bool | None = None


class TimeToLive(TableCall, rename="pascal"):
    """UpdateTimeToLive."""

    time_to_live_specification: TimeToLiveAsked | None = None


class RecoveryAsked(Struct, rename="pascal"):
    """Whether a table can be restored to any second."""

    point_in_time_recovery_enabled: bool | None = None
    recovery_period_in_days: int | None = None


class Backups(TableCall, rename="pascal"):
    """UpdateContinuousBackups."""

    point_in_time_recovery_specification: RecoveryAsked | None = None


class Nothing(Struct):
    """A call that takes nothing."""


def decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    """Return what reads the body of a call."""
    return msgspec.json.Decoder(kind)
