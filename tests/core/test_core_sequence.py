from __future__ import annotations

import pytest

from shardway.core.sequence import just_before, shard_id_number, shard_id_of, shard_number_of, version_of

# The numbers that KCL's own tests hold themselves to.
OF_SHARD_0 = 49587497311274533994574834252742144236107130636007899138
OF_SHARD_2 = 49585389983312162443796657944872008114154899568972529698
UNKNOWN_VERSION = 74107425965128755728308386687147091174006956590945533954


def test_the_version_of_real_sequence_numbers() -> None:
    assert version_of(OF_SHARD_0) == version_of(OF_SHARD_2) == 2


@pytest.mark.parametrize("number", [UNKNOWN_VERSION, 0, 1, OF_SHARD_0 >> 1, OF_SHARD_0 << 1])
def test_unknown_shapes_tell_nothing(number: int) -> None:
    assert version_of(number) is None
    assert shard_number_of(number) is None


def test_a_real_sequence_number_tells_its_shard() -> None:
    assert (shard_number_of(OF_SHARD_0), shard_number_of(OF_SHARD_2)) == (0, 2)


def test_the_number_just_before_is_of_the_same_shard_and_shape() -> None:
    before = just_before(OF_SHARD_0)
    assert before < OF_SHARD_0
    assert (version_of(before), before & 0xF_FFFF_FFFF) == (2, OF_SHARD_0 & 0xF_FFFF_FFFF), "the same shard"
    assert before >> 72 == OF_SHARD_0 >> 72, "its counter is the same: no earlier record of the shard is behind it"


@pytest.mark.parametrize("number", [UNKNOWN_VERSION, 1, 2**185 + 2])
def test_of_an_unknown_shape_the_next_lower_number_is_just_before(number: int) -> None:
    assert just_before(number) == number - 1


@pytest.mark.parametrize("number", [0, 7, 123456789012, 1234567890123])
def test_shard_ids_and_numbers_go_both_ways(number: int) -> None:
    assert shard_id_number(shard_id_of(number)) == number


def test_shard_id_has_twelve_digits() -> None:
    assert shard_id_of(7) == "shardId-000000000007"


@pytest.mark.parametrize(
    "shard_id",
    [
        "",
        "shardId-",
        "shardId-7",
        "shardId-0000000000007",
        "000000000007",
        "shardId-00000000000\u0667",
        "x",
        "shardId-" + "9" * 5000,
    ],
)
def test_ids_written_otherwise_have_no_number(shard_id: str) -> None:
    assert shard_id_number(shard_id) is None


def test_no_negative_shard_numbers() -> None:
    with pytest.raises(ValueError, match="not negative"):
        shard_id_of(-1)
