"""What other emulators get wrong: emulator, test, what they do. Each is expected to fail; one that passes
is reported.
"""

from __future__ import annotations

from typing import NamedTuple


class Deviation(NamedTuple):
    """An expected failure."""

    reason: str
    always: bool = True
    """False: a race, which may also end well."""
    run: bool = True
    """False: what it does holds up the tests after it."""


_NO_SUBSCRIPTION = "SubscribeToShard answers HTTP 500"
_NO_INITIAL_RESPONSE = "the event stream has no initial-response frame, without which boto3 reads nothing"
_PARENT_DELETED = "resharding deletes the parent with its records"
_TOO_SLOW = "megabytes take longer than any client waits"
_NEVER_CLOSED = "a closed shard's iterator never ends and names no children"

DEVIATIONS: dict[str, dict[str, Deviation]] = {
    "moto": {
        "test_sequence_numbers_are_long_and_ascend": Deviation("sequence numbers are 1, 2, 3"),
        "test_an_explicit_hash_key_decides": Deviation("the lowest hash key, 0, is taken for none: HTTP 500"),
        "test_one_answer_holds_at_most_ten_megabytes": Deviation("an answer has no cap"),
        "test_nine_mebibytes_are_taken": Deviation("a request is capped at 5 MB, as before 2024"),
        "test_a_record_over_a_mebibyte_is_refused": Deviation("a record has no cap"),
        "test_all_that_was_acknowledged_to_many_writers_is_there": Deviation(
            "acknowledged records of concurrent writers are lost", always=False
        ),
        "test_an_iterator_that_is_none_is_refused_as_a_wrong_argument": Deviation("HTTP 500"),
        "test_a_limit_over_10_000_is_refused": Deviation("any limit is taken"),
        "test_shards_come_in_pages": Deviation("a NextToken is refused without the first call's arguments"),
        "test_a_closed_parent_is_read_to_its_end": Deviation(_NEVER_CLOSED),
        "test_the_end_of_a_parent_names_its_children": Deviation(_NEVER_CLOSED),
        "test_both_ends_of_a_merge_name_both_parents": Deviation(_NEVER_CLOSED),
        "test_writes_go_to_the_children": Deviation("writes go on into the closed parent"),
        "test_update_shard_count_reshards_evenly": Deviation("writes go on into the closed parents"),
        "test_a_childs_numbers_are_above_its_parents": Deviation("every shard counts from 1"),
        "test_a_filter_picks_shards[AT_LATEST]": Deviation("filters are ignored"),
        "test_a_filter_picks_shards[AT_TRIM_HORIZON]": Deviation("filters are ignored"),
        "test_a_filter_picks_shards_after_one": Deviation("filters are ignored"),
        "test_a_subscription_brings_what_is_there": Deviation(_NO_SUBSCRIPTION),
        "test_the_event_at_a_shards_end_names_its_children": Deviation(_NO_SUBSCRIPTION),
        "test_a_second_reader_is_refused_at_first": Deviation(_NO_SUBSCRIPTION),
        "test_a_shard_that_does_not_exist_is_refused": Deviation(_NO_SUBSCRIPTION),
        "test_bytes_survive_the_java_sdks_cbor": Deviation("CBOR is answered with HTTP 500"),
    },
    "ministack": {
        "test_sequence_numbers_are_long_and_ascend": Deviation("sequence numbers have 30 digits"),
        "test_one_answer_holds_at_most_ten_megabytes": Deviation("an answer has no cap"),
        "test_nine_mebibytes_are_taken": Deviation("a request is capped at 5 MB, as before 2024"),
        "test_an_iterator_that_is_none_is_refused_as_a_wrong_argument": Deviation(
            "what is no iterator is told as an expired one"
        ),
        "test_a_limit_over_10_000_is_refused": Deviation("any limit is taken"),
        "test_shards_come_in_pages": Deviation("a NextToken alone is answered with: Stream None not found"),
        "test_a_split_makes_two_children_of_a_closed_parent": Deviation(_PARENT_DELETED),
        "test_a_merge_makes_one_child_of_two_parents": Deviation(_PARENT_DELETED),
        "test_a_closed_parent_is_read_to_its_end": Deviation(_PARENT_DELETED),
        "test_the_end_of_a_parent_names_its_children": Deviation(_PARENT_DELETED),
        "test_both_ends_of_a_merge_name_both_parents": Deviation(_PARENT_DELETED),
        "test_a_childs_numbers_are_above_its_parents": Deviation(_PARENT_DELETED),
        "test_update_shard_count_reshards_evenly": Deviation("the shards are replaced, with their records"),
        "test_a_filter_picks_shards[AT_TRIM_HORIZON]": Deviation(_PARENT_DELETED),
        "test_a_filter_picks_shards[FROM_TRIM_HORIZON]": Deviation(_PARENT_DELETED),
        "test_a_filter_picks_shards_after_one": Deviation("filters are ignored"),
        "test_shards_that_do_not_touch_are_not_merged": Deviation("any two shards are merged"),
        "test_the_event_at_a_shards_end_names_its_children": Deviation(_PARENT_DELETED),
        "test_bytes_survive_the_java_sdks_cbor": Deviation("in CBOR, Data is base64 text"),
    },
    "kinesis-local": {
        "test_more_than_500_records_are_refused": Deviation("any number of records is taken"),
        "test_more_than_ten_mebibytes_are_refused": Deviation(
            "it takes the request, and then does not answer for a minute", run=False
        ),
        "test_nine_mebibytes_are_taken": Deviation(_TOO_SLOW, run=False),
        "test_one_answer_holds_at_most_ten_megabytes": Deviation(_TOO_SLOW, run=False),
        "test_an_iterator_that_is_none_is_refused_as_a_wrong_argument": Deviation("HTTP 500"),
        "test_its_shards_divide_the_hash_keys_as_aws_does": Deviation("all bounds are off by one"),
        "test_a_childs_numbers_are_above_its_parents": Deviation(
            "a closed shard's EndingSequenceNumber is 2**63 - 1, below its own records'"
        ),
        "test_update_shard_count_reshards_evenly": Deviation("all bounds are off by one"),
        "test_a_filter_picks_shards[AT_TRIM_HORIZON]": Deviation("children made since the horizon are listed, too"),
        "test_a_subscription_brings_what_is_there": Deviation(_NO_INITIAL_RESPONSE),
        "test_the_event_at_a_shards_end_names_its_children": Deviation(_NO_INITIAL_RESPONSE),
        "test_a_second_reader_is_refused_at_first": Deviation(_NO_INITIAL_RESPONSE),
        "test_a_shard_that_does_not_exist_is_refused": Deviation("any shard is accepted"),
        "test_bytes_survive_the_java_sdks_cbor": Deviation("in CBOR, Data is base64 text"),
    },
}
