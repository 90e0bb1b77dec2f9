"""What is set up beside a table: tags, the time to live, backups. The service keeps the settings, and does no more."""

from __future__ import annotations

from typing import Any

from shardway.local.dynamodb import schemas
from shardway.local.dynamodb.errors import DynamoError, constraint, invalid_values, not_found, validation
from shardway.local.dynamodb.requests import Backups, Nothing, TableCall, Tagging, TimeToLive
from shardway.local.dynamodb.state import State
from shardway.local.dynamodb.table import Table

RECOVERY_S = 35 * 86_400.0


def _table_of(state: State, request: Tagging) -> Table:
    arn = request.resource_arn
    if arn is None:
        raise constraint(None, "resourceArn", "not be null")
    table = state.present(arn) if arn.startswith("arn:") else None
    if table is None:
        if not arn.startswith("arn:"):
            raise validation(f"Invalid TableArn: Invalid ResourceArn provided as input {arn[:300]}")
        raise not_found(f"Requested resource not found: ResourcArn: {arn[:300]} not found")
    return table


def tag_resource(state: State, request: Tagging) -> None:
    """Do a TagResource."""
    table = _table_of(state, request)
    tags = table.tags | schemas.tags(request.tags)
    if len(tags) > schemas.TAGS_MAX:
        raise DynamoError("LimitExceededException", f"a table has at most {schemas.TAGS_MAX} tags")
    table.tags = tags


def untag_resource(state: State, request: Tagging) -> None:
    """Do an UntagResource."""
    table = _table_of(state, request)
    table.tags = {key: value for key, value in table.tags.items() if key not in (request.tag_keys or ())}


def list_tags_of_resource(state: State, request: Tagging) -> dict[str, Any]:
    """Do a ListTagsOfResource."""
    return {"Tags": [{"Key": key, "Value": value} for key, value in _table_of(state, request).tags.items()]}


def describe_time_to_live(state: State, request: TableCall) -> dict[str, Any]:
    """Do a DescribeTimeToLive."""
    attribute = state.described(request.table_name).ttl_attribute
    if attribute is None:
        return {"TimeToLiveDescription": {"TimeToLiveStatus": "DISABLED"}}
    return {"TimeToLiveDescription": {"TimeToLiveStatus": "ENABLED", "AttributeName": attribute}}


def update_time_to_live(state: State, request: TimeToLive) -> dict[str, Any]:
    """Do an UpdateTimeToLive. No row ends by it: AWS, too, says only that it deletes some day after the time."""
    table = state.described(request.table_name)
    asked = request.time_to_live_specification
    if asked is None or asked.enabled is None or not asked.attribute_name:
        raise constraint(None, "timeToLiveSpecification", "not be null")
    if asked.enabled == (table.ttl_attribute is not None):
        raise validation(f"TimeToLive is already {'enabled' if asked.enabled else 'disabled'}")
    if not asked.enabled and table.ttl_attribute != asked.attribute_name:
        raise validation(
            f"TimeToLive is active on a different AttributeName: current AttributeName is {table.ttl_attribute}"
        )
    table.ttl_attribute = asked.attribute_name if asked.enabled else None
    return {"TimeToLiveSpecification": {"Enabled": asked.enabled, "AttributeName": asked.attribute_name}}


def describe_continuous_backups(state: State, request: TableCall) -> dict[str, Any]:
    """Do a DescribeContinuousBackups."""
    name = request.table_name
    table = None if name is None else state.present(name)
    if table is None:
        raise DynamoError("TableNotFoundException", f"Table not found: {name}")
    since = table.recoverable_since_s
    recovery: dict[str, Any] = {"PointInTimeRecoveryStatus": "DISABLED" if since is None else "ENABLED"}
    if since is not None:
        now = state.clock()
        recovery |= {
            "EarliestRestorableDateTime": max(since, now - RECOVERY_S),
            "LatestRestorableDateTime": now,
        }
    description = {"ContinuousBackupsStatus": "ENABLED", "PointInTimeRecoveryDescription": recovery}
    return {"ContinuousBackupsDescription": description}


def update_continuous_backups(state: State, request: Backups) -> dict[str, Any]:
    """Do an UpdateContinuousBackups. Nothing is backed up: the service is for tests."""
    table = state.present(request.table_name or "")
    asked = request.point_in_time_recovery_specification
    if table is not None:
        if asked is None or asked.point_in_time_recovery_enabled is None:
            raise invalid_values("PointInTimeRecoverySpecification is missing")
        if not asked.point_in_time_recovery_enabled:
            table.recoverable_since_s = None
        elif table.recoverable_since_s is None:
            table.recoverable_since_s = state.clock()
    return describe_continuous_backups(state, request)


def describe_limits(state: State, request: Nothing) -> dict[str, Any]:  # noqa: ARG001 - a call as the others
    """Do a DescribeLimits."""
    return {
        "AccountMaxReadCapacityUnits": 80_000,
        "AccountMaxWriteCapacityUnits": 80_000,
        "TableMaxReadCapacityUnits": 40_000,
        "TableMaxWriteCapacityUnits": 40_000,
    }
