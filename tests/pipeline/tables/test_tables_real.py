"""Delta and Iceberg as they are, each with the newest PySpark that it supports: table_scenes.py, and what it found.

A format's scenes run in one process. Where PySpark or the package cannot be had the tests skip.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.pipeline.tables.table_packages import UNRESOLVED, WAIT_S, newest

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(WAIT_S + 60)]

FORMATS = ("delta", "iceberg")
SCENES = Path(__file__).with_name("table_scenes.py")
_found: dict[str, dict[str, Any]] = {}


@pytest.fixture
def found(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the scene of the test's name found with a format: the process runs once for all of them."""
    kind = request.getfixturevalue("kind")
    if kind not in _found:
        given, folder = newest(kind), tmp_path_factory.mktemp(f"tables-{kind}")
        done = subprocess.run(
            [str(given.python), str(SCENES), kind, given.package, str(folder)],
            cwd=folder, env=given.environment(), capture_output=True, text=True, timeout=WAIT_S, check=False,
        )  # fmt: skip
        if done.returncode and UNRESOLVED in done.stderr + done.stdout:
            pytest.skip(f"{given.package} cannot be had here")
        assert done.returncode == 0, done.stderr[-4000:]
        _found[kind] = json.loads((folder / "found.json").read_text())
        assert _found[kind]["spark"] == given.spark
    scene = request.node.originalname.removeprefix("test_")
    result: dict[str, Any] = _found[kind][scene]
    assert "raised" not in result, result["raised"]
    return result


both = pytest.mark.parametrize("kind", FORMATS)


@both
def test_appended_by_partition(found: dict[str, Any], kind: str) -> None:
    assert found["failed"] == ["", ""]
    assert found["ids"] == list(range(9))
    hours = [f"2026-11-21-{hour}" for hour in (10, 11, 12)]  # three rows an hour, of two kinds
    assert found["hours"] == [[hour, f"kind-{number}"] for hour in hours for number in (0, 1)]
    assert found["folders"] == 6
    assert found["written"] == [True]


@both
def test_repeated(found: dict[str, Any], kind: str) -> None:
    assert found["failed"] == [""] * 4
    assert found["ids"] == [*range(10), 100, 101]
    assert found["grown"] == 0
    assert found["written"] == [False, False, False, True]  # the last run repeats batch 1, and goes on


@both
def test_an_older_one_again(found: dict[str, Any], kind: str) -> None:
    assert found["failed"] == ["", ""]
    assert found["ids"] == list(range(9))
    assert (found["grown"], found["written"]) == (0, [False, False])


@both
def test_broken_off(found: dict[str, Any], kind: str) -> None:
    assert found["failed"]
    assert found["between"] == [0, 1, 2]
    assert (found["again"], found["ids"]) == ("", [0, 1, 2, *range(10, 20)])


@both
def test_two_pipelines(found: dict[str, Any], kind: str) -> None:
    assert found["failed"] == [""] * 4
    one = [number * 10 + row for number in range(3) for row in range(5)]
    assert found["ids"] == [*one, *(1000 + row for row in one)]


@both
def test_new_columns(found: dict[str, Any], kind: str) -> None:
    assert found["refused"]
    assert found["between"] == [0, 1, 2]
    assert (found["taken"], found["ids"]) == ("", list(range(6)))
    assert found["colours"] == ["None"] * 3 + ["colour"] * 3


@both
def test_two_writes_of_a_batch(found: dict[str, Any], kind: str) -> None:
    assert "was written to this table before in the same run" in found["refused"]
    assert found["refused_ids"] == [0, 1]
    assert found["failed"] == ["", ""]
    assert found["ids"] == sorted([0, 1, *range(4)])


@both
def test_by_hand(found: dict[str, Any], kind: str) -> None:
    assert "outside of foreachBatch" in found["unnamed"]
    assert found["written"] == [True, False, True, False, False]
    assert "the table has batch 2 of this query and lacks the earlier batch 1" in found["older"]
    assert found["ids"] == [0, 0, 1, 1]


@pytest.mark.parametrize("kind", ["delta"])
def test_of_the_catalog(found: dict[str, Any], kind: str) -> None:
    assert found == {"failed": ["", ""], "written": [True, False], "ids": [0, 1, 2, 3]}


@pytest.mark.parametrize("kind", ["delta"])
def test_two_drivers(found: dict[str, Any], kind: str) -> None:
    assert found["ids"] == [0, 0, 1, 1]


@pytest.mark.parametrize("kind", ["delta"])
def test_set_back(found: dict[str, Any], kind: str) -> None:
    assert found["failed"] == ["", "", ""]
    assert found["written"] == [False]
    for stopped, batch in ((found["newest"], 2), (found["older"], 1)):
        assert f"the table does not show whether it has batch {batch}" in stopped
        assert "It has taken the batches of this query up to 2" in stopped
    assert found["between"] == [*range(9), 100]
    assert found["ids"] == sorted([*range(9), *range(9), 100]), "a new writer has no number, and is not unknown"


@pytest.mark.parametrize("kind", ["delta"])
def test_set_back_behind_many_commits(found: dict[str, Any], kind: str) -> None:
    assert "the table does not show whether it has batch 1" in found["stopped"]
    assert found["failed"] == ["", ""]
    assert found["ids"] == sorted([*range(9), *range(9), 100, 100, 100])


@pytest.mark.parametrize("kind", ["delta"])
def test_set_back_where_delta_cannot_be_asked(found: dict[str, Any], kind: str) -> None:
    assert "up to this one or a later one" in found["stopped"]
    assert found["failed"] == ["", ""]
    assert found["between"] == [*range(9), 100]
    assert found["ids"] == sorted([*range(9), *range(9), 100])


@pytest.mark.parametrize("kind", ["delta"])
def test_forgotten_writer(found: dict[str, Any], kind: str) -> None:
    assert "the table does not show whether it has batch 0" in found["stopped"]
    assert found["failed"] == ["", ""]
    assert found["between"] == [0, 1, 2, 100]
    assert found["ids"] == sorted([0, 1, 2, 100, 0, 1, 2])


@pytest.mark.parametrize("kind", ["iceberg"])
def test_set_back_and_expired(found: dict[str, Any], kind: str) -> None:
    assert "the table has batch 2 of this query and lacks the earlier batch 1" in found["stopped"]
    assert found["between"] == list(range(9))
    assert found["failed"] == ["", ""]
    assert found["ids"] == sorted([*range(9), *range(3, 9), 100])


@pytest.mark.parametrize("kind", ["iceberg"])
def test_expired(found: dict[str, Any], kind: str) -> None:
    assert "the table does not show whether it has batch 0" in found["stopped"]
    assert found["between"] == [0, 1, 2, 3, 100]
    assert found["failed"] == ["", ""]
    assert found["ids"] == sorted([0, 1, 2, 3, 100, 0, 1, 2, 3])


@pytest.mark.parametrize("kind", ["iceberg"])
def test_rolled_back(found: dict[str, Any], kind: str) -> None:
    assert found == {"failed": ["", ""], "between": [0, 1, 2], "ids": list(range(6))}
