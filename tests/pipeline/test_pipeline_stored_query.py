"""A query that a released version began, and that a kill ended in its last batch: today's code goes on with it, exactly
once.

Its stream lies in a journal that the version has written, its position in a checkpoint directory, its rows in a folder.
"""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import TYPE_CHECKING

from tests.pipeline.query_kit import FIRST, put, run, service, unpack

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FIXTURE = Path(__file__).resolve().parents[1] / "fixtures" / "spark" / "query_0_3.json"
MORE = range(len(FIRST), len(FIRST) + 10)


def files_of(folder: Path) -> dict[str, list[tuple[str, str]]]:
    """The rows of each file: their data, and their shard."""
    return {
        file.name: [(row["data"], row["shard_id"]) for row in map(json.loads, file.read_text().splitlines())]
        for file in sorted((folder / "out").glob("batch-*.json"))
    }


def test_it_goes_on_and_its_last_batch_replaces_what_it_wrote(spark: SparkSession, tmp_path: Path) -> None:
    packed = json.loads(FIXTURE.read_text(encoding="utf-8"))
    unpack(packed, tmp_path)
    before = files_of(tmp_path)
    offsets = [name for name in packed if name.startswith("checkpoint/offsets/")]
    commits = [name for name in packed if name.startswith("checkpoint/commits/")]
    assert (len(commits), len(offsets)) == (1, 2), "the last batch has no commit: it runs again"
    ends = base64.b64decode(packed[max(offsets)]).decode()
    assert '"v":1' in ends.replace(" ", "")
    newest = tmp_path / "out" / max(before)
    newest.write_text("")  # what the batch is written with now comes from its offsets alone
    with service(tmp_path, later_s=60.0) as local:
        put(local, MORE)
        local.clock.advance(10.0)
        run(spark, local, tmp_path)
    after = files_of(tmp_path)
    assert len(after) == len(list((tmp_path / "out").glob("batch-*.json"))), "no file of a batch is there twice"
    assert {name: sorted(rows) for name, rows in after.items() if name in before} == {
        name: sorted(rows) for name, rows in before.items()
    }
    assert len(after) > len(before)
    assert sorted(data for rows in after.values() for data, _ in rows) == [f"{one:04d}" for one in (*FIRST, *MORE)]
    assert len({shard for rows in after.values() for _, shard in rows}) > 2, "shards of before and after a split"
