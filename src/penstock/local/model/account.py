"""DescribeLimits and the account's settings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.local.model.streams import ON_DEMAND_STREAMS_MAX, open_shards_of

if TYPE_CHECKING:
    from penstock.local.model.service import KinesisModel

COMMITMENT_S = 24 * 3_600
"""A commitment cannot be ended before it has lasted that long."""


def describe_limits(model: KinesisModel, request: dict[str, Any]) -> dict[str, Any]:
    """DescribeLimits."""
    model.settle_all()
    streams = model.state.streams.values()
    return {
        "ShardLimit": model.shard_quota,
        "OpenShardCount": open_shards_of(model),
        "OnDemandStreamCount": sum(1 for stream in streams if stream.mode == "ON_DEMAND"),
        "OnDemandStreamCountLimit": ON_DEMAND_STREAMS_MAX,
    }


def describe_account_settings(model: KinesisModel, request: dict[str, Any]) -> dict[str, Any]:
    """DescribeAccountSettings."""
    commitment = dict(model.state.commitment)
    now_s = model.now_ms() // 1000
    if commitment["Status"] == "ENABLED_UNTIL_EARLIEST_ALLOWED_END" and now_s >= commitment["EarliestAllowedEndAt"]:
        commitment = {"Status": "DISABLED", "EndedAt": commitment["EarliestAllowedEndAt"]}
        model.commit("account", commitment)
    return {"MinimumThroughputBillingCommitment": commitment}


def update_account_settings(model: KinesisModel, request: dict[str, Any]) -> dict[str, Any]:
    """UpdateAccountSettings: a commitment that is ended early lasts until it may end."""
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
