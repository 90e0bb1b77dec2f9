"""`scripts/house.py` counts what it says: one of each kind in a small tree, and a record that is really carried."""

from __future__ import annotations

import asyncio
import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]


def _house() -> Any:
    spec = importlib.util.spec_from_file_location("house", ROOT / "scripts" / "house.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # its NamedTuples look there for their module
    spec.loader.exec_module(module)
    return module


house = _house()

FACE = """
from shardway.options import ProducerOptions, WorkerSettings, Leases

__all__ = ["ProducerOptions", "WorkerSettings", "Leases", "Public"]


class Public:
    def __init__(self, a: Callable[[], None], b: Callable[[], None], c: Callable[[], None]) -> None: ...
"""

OPTIONS = """
from typing import ClassVar
from collections.abc import Callable

import msgspec


class Prompt(msgspec.Struct):
    each: int = 1


class Leases(msgspec.Struct):
    table: str = ""
    seconds: float = 1.0


class ProducerOptions(msgspec.Struct):
    most: ClassVar[int] = 3
    linger_s: float = 0.1
    _hidden: int = 0


@dataclass
class WorkerSettings:
    leases: Leases | None
    cadence: Prompt
    split: Callable[[Prompt], None]
"""

PARTS = '''
"""Whom the parts serve."""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from shardway.kinds import Told

# A reason.
Heard = Callable[[int], None] | None  # with a remark


class Asks(Protocol):
    def __call__(self, number: int) -> None: ...


class Port(Protocol):
    name: str


class Point(NamedTuple):
    x: int
    y: int


class Bag(NamedTuple):
    told: Told
    heard: Heard
    port: Port


class InnerBag(NamedTuple):
    bag: Bag
    first: int
    second: int


class Three:
    def __init__(self, told: Told, heard: "Heard", asks: Asks) -> None: ...


class WithBag:
    def __init__(self, bag: Bag | None, asks: Asks, *, point: Point) -> None: ...


class Many:
    def __init__(self, a: int, b: int, /, inner: InnerBag, c: int, *more: int, bags: list[Bag], d: int = 3) -> None:
        self.ready = True


class Bound:
    other: Three
    own: Three

    def __init__(self) -> None:
        self.late: Many
        self.on_told: Heard = None
        self.never: Many


class Derived(Bound):
    def __init__(self) -> None:
        self.own = Three(print, None, print)
'''

USE = """
from shardway.parts import Bound


def connect(bound: Bound) -> None:
    bound.late, bound.other = 1, 2
    bound.own = None
    bound.on_told = print
"""


@pytest.fixture
def tree(tmp_path: Path) -> Any:
    package = tmp_path / "src" / "shardway"
    package.mkdir(parents=True)
    (tmp_path / "docs").mkdir()
    texts = {
        "__init__": FACE,
        "options": OPTIONS,
        "kinds": "Told = Callable[[str], None]\n",
        "parts": PARTS,
        "use": USE,
    }
    for name, text in texts.items():
        (package / f"{name}.py").write_text(text, encoding="utf-8")
    (tmp_path / "docs" / "page.md").write_text("The worker reads.\nNobody writes.\n", encoding="utf-8")
    return house.Tree(tmp_path)


def test_a_constructor_and_a_bag_count_with_three_callbacks_by_whatever_name_and_a_public_class_does_not(
    tree: Any,
) -> None:
    assert house.with_many_callbacks(tree) == ["shardway.parts.Three: 3", "shardway.parts.WithBag: 3"]


def test_a_bag_counts_as_what_is_in_it_and_a_list_of_bags_as_one_argument(tree: Any) -> None:
    bags = [one.name for one in tree.classes if one.is_bag]
    assert bags == ["Bag", "InnerBag"]
    counts = {name.rpartition(".")[2]: count for count, name in house.argument_counts(tree)}
    assert counts == {"Many": 2 + 5 + 1 + 1 + 1, "WithBag": 5, "Three": 3, "Bound": 0, "Derived": 0}


def test_neighbours_that_come_late_are_those_without_a_value_that_other_code_sets(tree: Any) -> None:
    assert house.late_bound(tree) == ["shardway.parts.Bound.other", "shardway.parts.Bound.late"]


def test_a_slot_for_a_callback_counts_where_another_module_fills_it(tree: Any) -> None:
    assert house.filled_slots(tree) == ["shardway.parts.Bound.on_told: set by shardway.use"]


def test_words_and_comments_and_names(tree: Any) -> None:
    assert house.persons(tree) == ["docs/page.md:2", "src/shardway/parts.py:2"]
    alone, lines = house.comment_lines(tree)
    assert alone == 1
    assert lines == sum(len(text.splitlines()) for text in (FACE, OPTIONS, PARTS, USE)) + 1
    assert house.exported(tree.modules["shardway"]) == ["ProducerOptions", "WorkerSettings", "Leases", "Public"]


def test_fields_of_options_count_with_those_of_a_group_and_without_a_choices_own(
    tree: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(house, "OPTIONS", ("ProducerOptions", "WorkerSettings"))
    assert house.option_fields(tree) == {"ProducerOptions": 1, "WorkerSettings": 3, "Leases": 2}
    monkeypatch.setattr(house, "OPTIONS", ("ProducerOptions", "ConsumerOptions"))
    with pytest.raises(LookupError, match="no public class ConsumerOptions: name in OPTIONS"):
        house.option_fields(tree)


WALKED = {
    "first.py": "from walked.second import late\nfrom walked.aws.port import ask\n\n\n"
    "async def go(walk, back):\n    await ask(walk, back)\n    return late()\n",
    "second.py": "def late():\n    return 1\n",
    "third.py": "def back():\n    return 2\n",
    "early.py": "def early():\n    return 3\n",
    "aws/port.py": "import asyncio\n\n\n"
    "async def ask(walk, back):\n    await asyncio.sleep(0)\n    walk.begin()\n    back()\n",
}


def test_files_count_that_a_function_runs_in_and_not_those_behind_a_port_or_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in WALKED.items():
        path = tmp_path / "walked" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    from walked.early import early  # type: ignore[import-not-found]
    from walked.first import go  # type: ignore[import-not-found]
    from walked.second import late  # type: ignore[import-not-found]
    from walked.third import back  # type: ignore[import-not-found]

    with house.Walk(tmp_path / "walked") as walk:
        early()
        assert asyncio.run(go(walk, back)) == 1
        walk.end()
        early()
    assert sorted(walk.files) == ["first.py", "second.py"]
    with house.Walk(tmp_path / "walked", behind=()) as walk:
        walk.begin()
        late()
        back()
        walk.end()
    assert sorted(walk.files) == ["second.py", "third.py"]


def test_the_program_prints_every_measure_and_the_files_that_a_record_enters() -> None:
    """In a process of its own: a profile function belongs to all threads, and other tests have some."""
    shown = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "house.py"), "--places"], capture_output=True, text=True, check=True
    ).stdout
    table, *lists = shown.split("\n\n")
    rows = table.splitlines()[2:]
    assert len(rows) == len(lists) == 11
    assert all(row.startswith("| ") for row in rows)
    files = {place.splitlines()[0]: [name.strip() for name in place.splitlines()[1:]] for place in lists}
    entered = [names for title, names in files.items() if title.startswith("files that a warm record enters")]
    for names in entered:
        assert names == sorted(set(names))
        assert all((ROOT / "src" / "shardway" / name).is_file() for name in names)
        assert not any(name.startswith(house.BEHIND_PORTS) for name in names)
    consumer, producer = entered
    assert any("core/ledger" in name for name in consumer)
    assert any("core/batching" in name for name in producer)
