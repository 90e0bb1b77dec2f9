"""Answer the operations that are about the account: its limits and its settings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shardway.local.model.streams import ON_DEMAND_STREAMS_MAX, open_shards_of

if TYPE_CHECKING:
    from shardway.local.model.service import KinesisModel


COMMITMENT_S = 24 * 3_600
"""The seconds that a commitment has to last before it can be ended."""


def describe_limits(model: KinesisModel, _request: dict[str, Any]) -> dict[str, Any]:
    """Answer DescribeLimits."""
    model.settle_all()
    streams = model.state.streams.values()
    return {
        "ShardLimit": model.shard_quota,
        "OpenShardCount": open_shards_of(model),
        "OnDemandStreamCount": sum(1 for stream in streams if stream.mode == "ON_DEMAND"),
        "OnDemandStreamCountLimit": ON_DEMAND_STREAMS_MAX,
    }


def describe_account_settings(model: KinesisModel, _request: dict[str, Any]) -> dict[str, Any]:
    """Answer DescribeAccountSettings."""
    commitment = dict(model.state.commitment)
    now_s = model.now_ms() // 1000
    if commitment["Status"] == "ENABLED_UNTIL_EARLIEST_ALLOWED_END" and now_s >= commitment["EarliestAllowedEndAt"]:
        commitment = {"Status": "DISABLED", "EndedAt": commitment["EarliestAllowedEndAt"]}
        model.commit("account", commitment)
    return {"MinimumThroughputBillingCommitment": commitment}


def update_account_settings(model: KinesisModel, request: dict[str, Any]) -> dict[str, Any]:
    """Answer UpdateAccountSettings: a commitment that is ended early lasts until it may end."""
    wanted = request["MinimumThroughputBillingCommitment"]["Status"]
    current = describe_account_settings(model, {})["MinimumThroughputBillingCommitment"]
    now_s = model.now_ms() // 1000
    if wanted == "ENABLED":
        started_s = current.get("StartedAt", now_s) if current["Status"] != "DISABLED" else now_s
        commitment = {
            "Status": "ENABLED",
            "StartedAt": started_s,
            "EarliestAllowedEndAt": started_s + COMMITMENT_S,
        }
    elif current["Status"] == "ENABLED":
        early = now_s < current["EarliestAllowedEndAt"]
        commitment = (
            current | {"Status": "ENABLED_UNTIL_EARLIEST_ALLOWED_END"}
            if early
            else {"Status": "DISABLED", "EndedAt": now_s}
        )
    else:
        commitment = current
    model.commit("account", commitment)
    return {"MinimumThroughputBillingCommitment": commitment}
