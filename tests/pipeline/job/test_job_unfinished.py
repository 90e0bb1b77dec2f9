"""What a kill before the first offset leaves, and what must never be taken for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from shardway.pipeline.job.errors.exit_codes import StepError
from shardway.pipeline.job.run.unfinished_start import clear_unfinished_start

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

UNFINISHED = ".0.c594b6b6-37c3-42bf-a909-99162ea70dfe.tmp"
CHECKSUM = f".{UNFINISHED}.crc"


def made(folder: Path, *names: str) -> Path:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"v1")
    return folder


def left(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_no_directory_yet(spark: SparkSession, tmp_path: Path) -> None:
    assert clear_unfinished_start(spark, str(tmp_path / "none")) == []
    assert clear_unfinished_start(spark, str(made(tmp_path, "metadata"))) == []


def test_what_a_killed_first_start_left_is_removed(spark: SparkSession, tmp_path: Path) -> None:
    folder = made(tmp_path, "metadata", f"offsets/{UNFINISHED}", f"offsets/{CHECKSUM}")
    (folder / "commits").mkdir()
    assert clear_unfinished_start(spark, f"file:{folder}") == [CHECKSUM, UNFINISHED]
    assert left(folder) == {"metadata"}


@pytest.mark.parametrize(
    "others",
    [
        ("offsets/0",),
        ("offsets/7", "offsets/8", "commits/7", "state/0/0/1.delta"),
        ("offsets/.1.c594b6b6-37c3-42bf-a909-99162ea70dfe.tmp",),
        ("offsets/orders.txt",),
        ("offsets/.0.crc",),
    ],
)
def test_where_an_offset_is_or_may_have_been_nothing_is_removed(
    spark: SparkSession, tmp_path: Path, others: tuple[str, ...]
) -> None:
    folder = made(tmp_path, f"offsets/{UNFINISHED}", *others)
    before = left(folder)
    assert clear_unfinished_start(spark, str(folder)) == []
    assert left(folder) == before


@pytest.mark.parametrize("other", ["state/0/0/1.delta", "commits/0", f"commits/{UNFINISHED}"])
def test_a_state_without_an_offset_is_refused_and_left_as_it_is(
    spark: SparkSession, tmp_path: Path, other: str
) -> None:
    folder = made(tmp_path, f"offsets/{UNFINISHED}", other)
    before = left(folder)
    with pytest.raises(StepError, match=f"has {other.partition('/')[0]}, but no offset"):
        clear_unfinished_start(spark, str(folder))
    assert left(folder) == before
