"""Tags of user records in aggregates: what the writer makes of them, and what readers find."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardway.core.aggregation.fields import tag_fields
from shardway.core.aggregation.reader import open_aggregate, why_plain
from shardway.core.aggregation.wire_format import DATA, MAGIC, TAGS
from shardway.core.aggregation.writer import Aggregator
from shardway.core.protobuf import varint
from tests.core.aggregation.kpl_schema import AggregatedRecord

TEXT = st.text(st.characters(codec="utf-8"), max_size=40)
TAGS_OF_ONE = st.lists(st.tuples(TEXT, TEXT), max_size=3).map(tuple)
RECORDS = st.lists(
    st.tuples(st.sampled_from("abc"), st.binary(max_size=300), st.none() | st.integers(0, 2**128 - 1), TAGS_OF_ONE),
    min_size=1,
    max_size=20,
)


@given(RECORDS)
def test_what_is_written_is_found_by_the_kpls_schema_and_by_the_reader(
    records: list[tuple[str, bytes, int | None, tuple[tuple[str, str], ...]]],
) -> None:
    made = Aggregator(bytes_max=10**6)
    for key, data, explicit, tags in records:
        assert made.add(key, data, explicit, tag_fields(tags))
    size, framed = made.framed_bytes, made.frame()
    assert len(framed) == size
    message = AggregatedRecord.FromString(framed[len(MAGIC) : -16])
    assert [[(tag.key, tag.value) for tag in one.tags] for one in message.records] == [list(one[3]) for one in records]
    found = open_aggregate(framed)
    assert found is not None
    assert list(found.tags()) == [one[3] for one in records]
    assert list(found.datas) == [one[1] for one in records]
    assert list(found.explicit_hash_keys()) == [one[2] for one in records]


def test_a_single_record_with_tags_is_framed_unless_that_makes_it_too_large() -> None:
    tags = tag_fields([("traceparent", "00-" + "a" * 52)])
    roomy, tight = Aggregator(bytes_max=1_000), Aggregator(bytes_max=200)
    for made in (roomy, tight):
        assert made.add("key", b"x" * 150, None, tags)
    framed, plain = roomy.finish(), tight.finish()
    assert framed is not None
    assert plain is not None
    found = open_aggregate(framed.data)
    assert found is not None
    assert dict(next(found.tags())) == {"traceparent": "00-" + "a" * 52}
    assert (plain.data, plain.partition_key) == (b"x" * 150, "key"), "the record arrives, and its context does not"
    assert roomy.add("key", b"y"), "the next container begins anew"
    assert (again := roomy.finish()) is not None
    assert again.data == b"y"


def test_a_full_container_takes_no_further_record_with_tags() -> None:
    tags = tag_fields([("traceparent", "x" * 55)])
    made = Aggregator(bytes_max=500)
    count = 0
    while made.add("key", b"d" * 20, None, tags):
        count += 1
    assert made.framed_bytes <= 500 < made.framed_bytes + len(tags) + 20 + 10
    assert made.user_records == count


@pytest.mark.parametrize("tag", [b"", bytes((TAGS,)), bytes((DATA, 1))])
def test_a_broken_tag_makes_a_plain_record(tag: bytes) -> None:
    made = Aggregator()
    made.add("key", b"data", None, bytes((TAGS,)) + varint(len(tag)) + tag)
    framed = made.frame()
    assert open_aggregate(framed) is None
    assert "tag" in str(why_plain(framed)) or "field" in str(why_plain(framed)) or "short" in str(why_plain(framed))
