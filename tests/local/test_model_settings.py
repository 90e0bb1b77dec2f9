"""Settings of streams and of the account; tags; resource policies."""

from __future__ import annotations

import json

import pytest

from tests.local.model_kit import START_S, World

ACCOUNT = "000000000000"


@pytest.fixture
def world() -> World:
    made = World()
    made.create()
    return made


def arn_of(world: World) -> str:
    return str(world.summary()["StreamARN"])


# --- settings -------------------------------------------------------------------------------------


def test_enhanced_monitoring_is_switched_on_in_steps_and_off(world: World) -> None:
    answer = world.call(
        "EnableEnhancedMonitoring", StreamName="s", ShardLevelMetrics=["OutgoingBytes", "IncomingBytes"]
    )
    assert answer == {
        "StreamName": "s",
        "StreamARN": arn_of(world),
        "CurrentShardLevelMetrics": [],
        "DesiredShardLevelMetrics": ["IncomingBytes", "OutgoingBytes"],
    }
    answer = world.call("EnableEnhancedMonitoring", StreamName="s", ShardLevelMetrics=["ALL"])
    assert len(answer["CurrentShardLevelMetrics"]) == 2
    assert len(answer["DesiredShardLevelMetrics"]) == 7
    answer = world.call("DisableEnhancedMonitoring", StreamName="s", ShardLevelMetrics=["IncomingBytes"])
    assert len(answer["DesiredShardLevelMetrics"]) == 6
    assert world.summary()["EnhancedMonitoring"] == [{"ShardLevelMetrics": answer["DesiredShardLevelMetrics"]}]
    world.call("DisableEnhancedMonitoring", StreamName="s", ShardLevelMetrics=["ALL"])
    assert world.summary()["EnhancedMonitoring"] == [{"ShardLevelMetrics": []}]
    fault = world.fails("EnableEnhancedMonitoring", StreamName="s", ShardLevelMetrics=["None"])
    assert "'shardLevelMetrics.1.member' failed to satisfy constraint" in str(fault.message)


def test_encryption_is_told_while_it_is_on(world: World) -> None:
    key = "arn:aws:kms:us-east-1:000000000000:alias/k"
    world.call("StartStreamEncryption", StreamName="s", EncryptionType="KMS", KeyId=key)
    assert (world.summary()["EncryptionType"], world.summary()["KeyId"]) == ("KMS", key)
    world.call("StopStreamEncryption", StreamName="s", EncryptionType="KMS", KeyId=key)
    assert world.summary()["EncryptionType"] == "NONE"
    assert "KeyId" not in world.summary()
    fault = world.fails("StartStreamEncryption", StreamName="s", EncryptionType="NONE", KeyId=key)
    assert fault.code == "InvalidArgumentException"


def test_settings_take_their_time_and_wait_for_each_other() -> None:
    world = World(settle_s=5)
    world.create()
    world.advance(5)
    world.call("UpdateMaxRecordSize", StreamARN=arn_of(world), MaxRecordSizeInKiB=4096)
    assert world.summary()["StreamStatus"] == "UPDATING"
    request = {"StreamName": "s", "RetentionPeriodHours": 48}
    assert world.fails("IncreaseStreamRetentionPeriod", **request).code == "ResourceInUseException"
    world.advance(5)
    world.call("IncreaseStreamRetentionPeriod", **request)
    world.advance(5)
    assert (world.summary()["StreamStatus"], world.summary()["MaxRecordSizeInKiB"]) == ("ACTIVE", 4096)


def test_the_mode_is_changed_and_the_shards_stay(world: World) -> None:
    arn = arn_of(world)
    world.call("UpdateStreamMode", StreamARN=arn, StreamModeDetails={"StreamMode": "ON_DEMAND"})
    assert world.summary()["StreamModeDetails"] == {"StreamMode": "ON_DEMAND"}
    assert world.ids() == [0]
    world.call("UpdateStreamRecordDistributionStrategy", StreamARN=arn, RecordDistributionStrategy="AUTO")
    assert world.summary()["RecordDistributionStrategy"] == "AUTO"
    world.call("UpdateStreamMode", StreamARN=arn, StreamModeDetails={"StreamMode": "PROVISIONED"})
    assert "RecordDistributionStrategy" not in world.summary()
    request = {"StreamARN": arn, "RecordDistributionStrategy": "AUTO"}
    assert world.fails("UpdateStreamRecordDistributionStrategy", **request).code == "InvalidArgumentException"


def test_warm_throughput_needs_a_commitment_of_the_account() -> None:
    world = World()
    world.call("CreateStream", StreamName="s")
    request = {"StreamName": "s", "WarmThroughputMiBps": 100}
    assert world.fails("UpdateStreamWarmThroughput", **request).code == "ValidationException"
    enabled = {"MinimumThroughputBillingCommitment": {"Status": "ENABLED"}}
    answer = world.call("UpdateAccountSettings", **enabled)["MinimumThroughputBillingCommitment"]
    assert answer == {
        "Status": "ENABLED",
        "StartedAt": int(START_S),
        "EarliestAllowedEndAt": int(START_S) + 24 * 3_600,
    }
    assert world.call("UpdateStreamWarmThroughput", **request)["WarmThroughput"] == {"TargetMiBps": 100}
    assert world.summary()["WarmThroughput"] == {"TargetMiBps": 100, "CurrentMiBps": 100}
    too_much = world.fails("UpdateStreamWarmThroughput", StreamName="s", WarmThroughputMiBps=10_241)
    assert too_much.code == "InvalidArgumentException"


def test_a_commitment_ends_when_it_may(world: World) -> None:
    def status(**request: object) -> object:
        operation = "UpdateAccountSettings" if request else "DescribeAccountSettings"
        return world.call(operation, **request)["MinimumThroughputBillingCommitment"]["Status"]

    off = {"MinimumThroughputBillingCommitment": {"Status": "DISABLED"}}
    on = {"MinimumThroughputBillingCommitment": {"Status": "ENABLED"}}
    assert status() == "DISABLED"
    assert status(**off) == "DISABLED"
    assert status(**on) == "ENABLED"
    assert status(**off) == "ENABLED_UNTIL_EARLIEST_ALLOWED_END"
    world.advance(24 * 3_600 + 1)
    assert status() == "DISABLED"
    assert status(**on) == "ENABLED"
    world.advance(24 * 3_600 + 1)
    assert status(**off) == "DISABLED"


# --- tags -----------------------------------------------------------------------------------------


def tags(world: World, **more: object) -> dict[str, str]:
    listed = world.call("ListTagsForStream", StreamName="s", **more)["Tags"]
    return {tag["Key"]: tag["Value"] for tag in listed}


def test_tags_are_added_replaced_and_removed(world: World) -> None:
    assert world.model.handle("AddTagsToStream", b'{"StreamName":"s","Tags":{"a":"1","\xc3\xbc0 _.":"2"}}') == b""
    world.call("AddTagsToStream", StreamName="s", Tags={"a": "3", "/=+-@:": ""})
    assert tags(world) == {"/=+-@:": "", "a": "3", "ü0 _.": "2"}
    world.call("RemoveTagsFromStream", StreamName="s", TagKeys=["a", "never there"])
    assert tags(world) == {"/=+-@:": "", "ü0 _.": "2"}


def test_tags_are_listed_by_key_in_pages(world: World) -> None:
    keys = [" ", "+", "/", "0", "=", "@", "Zb", "_", "a", "ÿ"]
    world.call("AddTagsToStream", StreamName="s", Tags=dict.fromkeys(reversed(keys), "v"))
    assert list(tags(world)) == keys
    page = world.call("ListTagsForStream", StreamName="s", ExclusiveStartTagKey="@", Limit=2)
    assert ([tag["Key"] for tag in page["Tags"]], page["HasMoreTags"]) == (["Zb", "_"], True)
    assert list(tags(world, ExclusiveStartTagKey="Za$Z%*(*&@,,.,,")) == ["Zb", "_", "a", "ÿ"]


@pytest.mark.parametrize("bad", ["abc;def", "abc\tdef", "abc\ndef", "abc,def"])
def test_characters_that_tags_may_not_have(world: World, bad: str) -> None:
    said = (
        "Some tags contain invalid characters. Valid characters: Unicode letters, digits, white space, _ . / = + - % @."
    )
    assert world.fails("AddTagsToStream", StreamName="s", Tags={bad: "1"}).message == said
    assert world.fails("AddTagsToStream", StreamName="s", Tags={"a": bad}).message == said
    assert world.fails("RemoveTagsFromStream", StreamName="s", TagKeys=[bad]).message == said


def test_a_percent_sign_is_refused_in_other_words(world: World) -> None:
    tail = (
        f"under account {ACCOUNT} because some tags contained illegal characters. "
        "The allowed characters are Unicode letters, white-spaces, '_',',','/','=','+','-','@'."
    )
    fault = world.fails("AddTagsToStream", StreamName="s", Tags={"abc%def": "1"})
    assert fault.message == f"Failed to add tags to stream s {tail}"
    fault = world.fails("RemoveTagsFromStream", StreamName="s", TagKeys=["abc%def"])
    assert fault.message == f"Failed to remove tags from stream s {tail}"


def test_fifty_tags_at_most(world: World) -> None:
    world.call("AddTagsToStream", StreamName="s", Tags={f"k{i}": "" for i in range(50)})
    world.call("AddTagsToStream", StreamName="s", Tags={"k0": "new"})
    fault = world.fails("AddTagsToStream", StreamName="s", Tags={"k50": ""})
    assert fault.message == (
        f"Failed to add tags to stream s under account {ACCOUNT} "
        "because a given stream cannot have more than 50 tags associated with it."
    )


def test_lengths_of_tags(world: World) -> None:
    fault = world.fails("AddTagsToStream", StreamName="s", Tags={"a": "1", "k" * 129: "3"})
    assert (
        "at 'tags' failed to satisfy constraint: Map keys must satisfy constraint: [Member must have length less than "
        "or equal to 128, Member must have length greater than or equal to 1]"
    ) in str(fault.message)
    fault = world.fails("AddTagsToStream", StreamName="s", Tags={"c": "v" * 257})
    assert "Map value must satisfy constraint: [Member must have length less than or equal to 256" in str(fault.message)
    assert "Value '{}' at 'tags'" in str(world.fails("AddTagsToStream", StreamName="s", Tags={}).message)
    fault = world.fails("RemoveTagsFromStream", StreamName="s", TagKeys=["a", "k" * 129, "b"])
    assert fault.message == (
        f"1 validation error detected: Value '[a, {'k' * 129}, b]' at 'tagKeys' failed to satisfy constraint: "
        "Member must satisfy constraint: [Member must have length less than or equal to 128, "
        "Member must have length greater than or equal to 1]"
    )


def test_streams_and_consumers_are_tagged_as_resources(world: World) -> None:
    stream = arn_of(world)
    made = world.call("RegisterStreamConsumer", StreamARN=stream, ConsumerName="c", Tags={"born": "with"})
    for arn, before in ((stream, []), (made["Consumer"]["ConsumerARN"], [{"Key": "born", "Value": "with"}])):
        assert world.call("ListTagsForResource", ResourceARN=arn) == {"Tags": before}
        world.call("TagResource", ResourceARN=arn, Tags={"a": "1", "b": "2"})
        world.call("UntagResource", ResourceARN=arn, TagKeys=["a"])
        assert {"Key": "b", "Value": "2"} in world.call("ListTagsForResource", ResourceARN=arn)["Tags"]
    assert tags(world) == {"b": "2"}
    for unknown in (stream + "x", f"{stream}/consumer/c:1"):
        assert world.fails("ListTagsForResource", ResourceARN=unknown).code == "ResourceNotFoundException"


# --- resource policies ----------------------------------------------------------------------------


def test_policies_are_kept_and_given_back(world: World) -> None:
    stream = arn_of(world)
    consumer = world.call("RegisterStreamConsumer", StreamARN=stream, ConsumerName="c")["Consumer"]["ConsumerARN"]
    policy = json.dumps({"Version": "2012-10-17", "Statement": []})
    for arn in (stream, consumer):
        assert world.call("GetResourcePolicy", ResourceARN=arn) == {"Policy": "{}"}
        fault = world.fails("DeleteResourcePolicy", ResourceARN=arn)
        assert fault.message == f"No resource policy found for resource ARN {arn}."
        world.call("PutResourcePolicy", ResourceARN=arn, Policy=policy)
        assert world.call("GetResourcePolicy", ResourceARN=arn) == {"Policy": policy}
        for bad in ("{", "[]"):
            assert world.fails("PutResourcePolicy", ResourceARN=arn, Policy=bad).code == "InvalidArgumentException"
        world.call("DeleteResourcePolicy", ResourceARN=arn)
        assert world.call("GetResourcePolicy", ResourceARN=arn) == {"Policy": "{}"}
    unknown = stream + "x"
    fault = world.fails("GetResourcePolicy", ResourceARN=unknown)
    assert (fault.code, fault.message) == (
        "ResourceNotFoundException",
        f"Stream {unknown} under account {ACCOUNT} not found.",
    )
