#!/usr/bin/env python3
"""Measures how the code is cut into parts, and prints a table of the figures.

::

    scripts/run python scripts/house.py             # the table
    scripts/run python scripts/house.py --places    # and each place that is counted

The program finds all figures but two by reading files: the syntax trees of ``src/shardway``, its text, and the pages.
It runs nothing for them. This is how it counts each figure:

*modules* are the files ``*.py`` below ``src/shardway``.

*files that a warm record enters*: A consumer and a producer run in this process, over a stream and a lease table in
memory, and have carried a record before. Then one more record is put. A file of ``src/shardway`` counts when a
function in it is called or goes on while this record is carried. In the consumer that lasts from the moment when the
port returns the record (`RecordSource.read`) until the record's checkpoint is stored. In the producer it lasts from
the moment when the program puts the record until the program has its outcome. Functions that run behind the ports do
not count: those of the packages ``aws``, ``stores``, ``local`` and ``testing``, and all that these call. The intervals
are so long that no round of the worker falls into that time. Where a round does, the program repeats the walk.

*a constructor* is an ``__init__`` that is written out. *Internal* is a class that is in the ``__all__`` neither of
``shardway`` nor of a module or package directly in it. A *part* is a class that is neither a plain value (a dataclass,
NamedTuple or Struct), an enumeration, a TypedDict nor an error. A Protocol is a part, too. A *bag* is an internal
plain value with a field that is a part, a callback or a bag. Where an argument is a bag, its fields count in its
place. An argument that is a list of bags counts as one argument.

*a callback* is an argument whose type names ``Callable``, an alias of such a type, or a Protocol with ``__call__``.
Constructors with three or more callbacks are counted, and bags with as many.

*arguments* are all that a constructor names except for ``self``. ``*args`` and ``**kwargs`` do not count.

*late-bound neighbours* are attributes for which a class names a type and no value, in its body or as ``self.x: T``.
They count where neither the class nor one derived from it sets them on ``self``, and other code sets them
(``holding.x = ...``).

*slots that other modules fill* are attributes of an internal class whose type is a callback, and that another module
sets.

*lines that name persons* are lines of pages (``docs``, ``README.md``, ``CONTRIBUTING.md``), and of comments and
strings in ``src``, with a word of ``PERSONS`` in ``tests/test_tidy.py``.

*exported names* are the entries of ``shardway.__all__``.

*public fields of option classes* are the fields without ``_`` of `OPTIONS`, and of each plain value that their types
name and that `CHOICES` does not list. The arguments that a function takes do not count. `ConsumerOptions` has the
options that are arguments of a consumer themselves, and its groups. It is an error when the code lacks a class of
`OPTIONS`: the classes that replace it belong in the list.

*comment share* is the share of lines that hold nothing but a comment, of all lines.
"""

from __future__ import annotations

import argparse
import ast
import asyncio
import importlib.util
import io
import random
import sys
import threading
import tokenize
from collections import Counter
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from types import FrameType

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = "shardway"
CALLBACKS_MANY = 3
BEHIND_PORTS = ("aws", "stores", "local", "testing")

OPTIONS = (
    "ConsumerOptions", "LeaseOptions", "HandoffOptions", "CheckpointOptions", "SettlingOptions", "BufferOptions",
    "PollingOptions", "FanOutOptions", "Retry", "Deduplicate", "MetricsOptions", "ConnectionOptions", "ProducerOptions",
)  # fmt: skip
CHOICES = {
    "AnyOrder", "ByKey", "Credentials", "DeadLetters", "DeadLettersTo", "DeadLettersToFile", "DeadLettersToStream",
    "Deliver", "EqualCounts", "Every", "GiveUp", "InOrder", "Prompt", "Redeliver", "Riding", "Skip", "StartingPosition",
    "Stop",
    "Warn",
}  # fmt: skip
"""The classes of values that a single option holds. Such a value says which of several behaviours is chosen, and has a
few fields of its own.
"""

VALUES = {"NamedTuple", "Struct"}
NO_PARTS = {"Enum", "IntEnum", "StrEnum", "Flag", "TypedDict"}
WALKS_MAX = 5
INTERVAL_S = 3_600.0
ANSWER_S = 20.0
SHARD_ID = "shardId-000000000000"


class Measure(NamedTuple):
    """A figure, with the places that were counted."""

    name: str
    figure: str
    goal: str
    places: list[str]


# --- syntax trees ---------------------------------------------------------------------------------


class Field(NamedTuple):
    """An argument of a constructor, or a field of a value."""

    name: str
    kind: ast.expr | None


class Class:
    """A class of the tree, with what its source says."""

    def __init__(self, module: Module, node: ast.ClassDef) -> None:
        self.module = module
        self.node = node
        self.name = node.name
        self.bases = [_last_name(one) for one in node.bases]

    @property
    def where(self) -> str:
        """The name of the class, with its module."""
        return f"{self.module.name}.{self.name}"

    @cached_property
    def ancestors(self) -> list[Class]:
        """The classes of the tree that it derives from, nearest first."""
        found = [one for name in self.bases if (one := self.module.find_class(name)) is not None and one is not self]
        return [*found, *(further for one in found for further in one.ancestors)]

    @cached_property
    def base_names(self) -> set[str]:
        """The names of all its bases, and of theirs."""
        return {*self.bases, *(name for one in self.ancestors for name in one.bases)}

    @cached_property
    def is_value(self) -> bool:
        """True when its constructor follows from its fields."""
        decorated = any(
            _last_name(one.func if isinstance(one, ast.Call) else one) == "dataclass"
            for owner in (self, *self.ancestors)
            for one in owner.node.decorator_list
        )
        return (decorated or bool(VALUES & self.base_names)) and self.init is None

    @property
    def is_part(self) -> bool:
        """True when it is neither a value, an enumeration, a TypedDict nor an error."""
        is_error = any(name.endswith(("Error", "Exception", "Group")) for name in self.base_names)
        return not (self.is_value or is_error or NO_PARTS & self.base_names)

    @cached_property
    def init(self) -> ast.FunctionDef | None:
        """The class's own constructor; None where none is written out."""
        return next(
            (one for one in self.node.body if isinstance(one, ast.FunctionDef) and one.name == "__init__"), None
        )

    @cached_property
    def fields(self) -> list[Field]:
        """The fields of a value: its own, and those of the values that it derives from."""
        own = [
            Field(one.target.id, one.annotation)
            for one in self.node.body
            if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name) and _is_field(one)
        ]
        names = {one.name for one in own}
        inherited = [field for one in self.ancestors[:1] if one.is_value for field in one.fields]
        return [*(one for one in inherited if one.name not in names), *own]

    @cached_property
    def arguments(self) -> list[Field]:
        """The arguments of its own constructor without ``self``, or the fields of a value."""
        if self.init is None:
            return self.fields if self.is_value else []
        given = self.init.args
        return [Field(one.arg, one.annotation) for one in [*given.posonlyargs, *given.args, *given.kwonlyargs][1:]]

    def expanded(self, seen: frozenset[str] = frozenset()) -> list[tuple[Class, Field]]:
        """Return (class, argument) for each argument, where the class is the one that names it. The fields of a bag
        stand in place of the bag. ``seen`` has the bags that are open already, as modules and names.
        """
        found: list[tuple[Class, Field]] = []
        for one in self.arguments:
            bag = next((bag for bag in self.module.classes_in(_itself(one.kind)) if bag.is_bag), None)
            if bag is None or bag.where in seen:
                found.append((self, one))
            else:
                found += bag.expanded(seen | {self.where, bag.where})
        return found

    @cached_property
    def is_bag(self) -> bool:
        """True when it is an internal value of parts or callbacks, or of bags of them."""
        return self.holds_parts(frozenset())

    def holds_parts(self, seen: frozenset[str]) -> bool:
        """Return True when it is a bag. ``seen`` has the classes that hold it, as modules and names."""
        if not self.is_value or self.where in seen or self.module.tree.is_public(self):
            return False
        for field in self.fields:
            held = self.module.classes_in(field.kind)
            if self.module.is_callback(field.kind) or any(one.is_part for one in held):
                return True
            if any(one.holds_parts(seen | {self.where}) for one in held):
                return True
        return False


class Module:
    """One file, with its classes, its aliases of types, and the modules that its imported names come from."""

    def __init__(self, tree: Tree, path: Path) -> None:
        self.tree = tree
        self.path = path
        self.text = path.read_text(encoding="utf-8")
        self.ast = ast.parse(self.text, filename=str(path))
        self.name = ".".join(path.relative_to(tree.src).with_suffix("").parts).removesuffix(".__init__")
        self.classes: dict[str, Class] = {}
        self.aliases: dict[str, ast.expr] = {}
        self.imported: dict[str, tuple[str, str]] = {}
        for node in ast.walk(self.ast):
            if isinstance(node, ast.ClassDef):
                self.classes[node.name] = Class(self, node)
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                self.imported |= {one.asname or one.name: (node.module, one.name) for one in node.names}
        for one in self.ast.body:
            value = one.value if isinstance(one, ast.Assign | ast.AnnAssign) else None
            target = one.targets[0] if isinstance(one, ast.Assign) else getattr(one, "target", None)
            if isinstance(target, ast.Name) and value is not None:
                self.aliases[target.id] = value

    def home_of(self, name: str) -> tuple[Module, str]:
        """Return the module that defines a name which this one uses, and the name that it has there."""
        seen: set[tuple[str, str]] = set()
        home = self
        while name in home.imported and home.imported[name] not in seen:
            seen.add(home.imported[name])
            module, name = home.imported[name]
            if module not in self.tree.modules:
                break
            home = self.tree.modules[module]
        return home, name

    def find_class(self, name: str) -> Class | None:
        """Return the class of the tree that a name stands for here; None where it stands for no class."""
        home, name = self.home_of(name)
        return home.classes.get(name)

    def classes_in(self, kind: ast.expr | None) -> list[Class]:
        """Return the classes of the tree that a type names, also by an alias."""
        found = []
        for home, name in self.names_in(kind):
            if (one := home.classes.get(name)) is not None:
                found.append(one)
        return found

    def is_callback(self, kind: ast.expr | None) -> bool:
        """Return True when a type is a function's, or may be."""
        if any(name == "Callable" for _, name in self.names_in(kind)):
            return True
        return any("Protocol" in one.bases and _has_method(one.node, "__call__") for one in self.classes_in(kind))

    def names_in(self, kind: ast.expr | None, depth: int = 0) -> Iterator[tuple[Module, str]]:
        """Yield (module, name) for the names that a type is made of, through aliases. The module defines the name."""
        for name in _names(kind):
            home, own = self.home_of(name)
            yield home, own
            if own in home.aliases and own not in home.classes and depth < 8:
                yield from home.names_in(home.aliases[own], depth + 1)


class Tree:
    """All modules of a package."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.src = root / "src"
        self.modules: dict[str, Module] = {}
        for path in sorted((self.src / PACKAGE).rglob("*.py")):
            module = Module(self, path)
            self.modules[module.name] = module

    @cached_property
    def classes(self) -> list[Class]:
        """All classes, in the order of the modules."""
        return [one for module in self.modules.values() for one in module.classes.values()]

    @cached_property
    def internal(self) -> list[Class]:
        """The classes that no list of public names has."""
        return [one for one in self.classes if not self.is_public(one)]

    @cached_property
    def _public(self) -> set[str]:
        found = set()
        for module in self.modules.values():
            if module.name.count(".") <= 1:
                homes = (module.home_of(name) for name in exported(module))
                found |= {f"{home.name}.{name}" for home, name in homes}
        return found

    def is_public(self, one: Class) -> bool:
        """Return True when a list of public names has the class."""
        return one.where in self._public


def _last_name(node: ast.expr) -> str:
    if isinstance(node, ast.Subscript):
        return _last_name(node.value)
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def _itself(kind: ast.expr | None) -> ast.expr | None:
    """Return a type without its ``None``. Return None where it is not one class, as with a list of bags."""
    if isinstance(kind, ast.BinOp):
        sides = [one for one in (kind.left, kind.right) if not (isinstance(one, ast.Constant) and one.value is None)]
        return _itself(sides[0]) if len(sides) == 1 else None
    return kind if isinstance(kind, ast.Name | ast.Attribute) else None


def _names(kind: ast.expr | None) -> Iterator[str]:
    """Yield the names in a type, also in one that stands as a text."""
    if kind is None:
        return
    for node in ast.walk(kind):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            try:
                yield from _names(ast.parse(node.value, mode="eval").body)
            except SyntaxError:
                continue


def _is_field(node: ast.AnnAssign) -> bool:
    if "ClassVar" in _names(node.annotation):
        return False
    made = node.value
    return not (
        isinstance(made, ast.Call)
        and any(one.arg == "init" and getattr(one.value, "value", None) is False for one in made.keywords)
    )


def _has_method(node: ast.ClassDef, name: str) -> bool:
    return any(isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef) and one.name == name for one in node.body)


def exported(module: Module) -> list[str]:
    """Return the entries of a module's ``__all__``, which may be none."""
    listed = module.aliases.get("__all__")
    return [str(one) for one in ast.literal_eval(listed)] if listed is not None else []


# --- what is counted in them ----------------------------------------------------------------------


def with_many_callbacks(tree: Tree) -> list[str]:
    """Return the internal constructors, and bags, with three or more callbacks, each with their number."""
    found = []
    for one in tree.internal:
        if one.init is not None or one.is_bag:
            count = sum(owner.module.is_callback(field.kind) for owner, field in one.expanded())
            if count >= CALLBACKS_MANY:
                found.append(f"{one.where}: {count}")
    return found


def argument_counts(tree: Tree) -> list[tuple[int, str]]:
    """Return (number of arguments, class) of each internal constructor, most first."""
    counts = [(len(one.expanded()), one.where) for one in tree.internal if one.init is not None]
    return sorted(counts, key=lambda one: (-one[0], one[1]))


def late_bound(tree: Tree) -> list[str]:
    """Return the attributes that are named without a value and that other code sets."""
    set_elsewhere = {name for module in tree.modules.values() for name, _ in _set_on_others(module.ast)}
    found = []
    for one in tree.classes:
        if one.is_value or "Protocol" in one.base_names or NO_PARTS & one.base_names:
            continue
        family = [one, *(other for other in tree.classes if one in other.ancestors)]
        set_on_self = {name for member in family for name in _set_on_self(member.node)}
        found += [
            f"{one.where}.{name}"
            for name in _named_without_value(one.node)
            if name in set_elsewhere and name not in set_on_self
        ]
    return found


def filled_slots(tree: Tree) -> list[str]:
    """Return the attributes for callbacks of an internal class that another module sets, each with those modules."""
    fillers: dict[str, list[Module]] = {}
    for module in tree.modules.values():
        for name, _ in _set_on_others(module.ast):
            fillers.setdefault(name, []).append(module)
    found = []
    for one in tree.internal:
        for name, kind in _typed_attributes(one.node):
            elsewhere = [module for module in fillers.get(name, ()) if module is not one.module]
            if elsewhere and one.module.is_callback(kind):
                found.append(
                    f"{one.where}.{name}: set by {', '.join(module.name for module in dict.fromkeys(elsewhere))}"
                )
    return found


def _targets(node: ast.AST) -> Iterator[ast.Attribute]:
    """Yield the attributes to which the statements in a syntax tree give a value."""
    for one in ast.walk(node):
        if isinstance(one, ast.Assign):
            given: Iterable[ast.expr] = one.targets
        elif isinstance(one, ast.AugAssign) or (isinstance(one, ast.AnnAssign) and one.value is not None):
            given = [one.target]
        else:
            continue
        for target in given:
            parts = target.elts if isinstance(target, ast.Tuple | ast.List) else [target]
            yield from (part for part in parts if isinstance(part, ast.Attribute))


def _is_self(node: ast.Attribute) -> bool:
    return isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")


def _set_on_others(node: ast.AST) -> Iterator[tuple[str, int]]:
    yield from ((one.attr, one.lineno) for one in _targets(node) if not _is_self(one))


def _set_on_self(node: ast.AST) -> set[str]:
    return {one.attr for one in _targets(node) if _is_self(one)}


def _typed_attributes(node: ast.ClassDef) -> Iterator[tuple[str, ast.expr]]:
    """Yield (name, type) of the attributes whose type a class names, in its body or on ``self``."""
    for one in ast.walk(node):
        if not isinstance(one, ast.AnnAssign):
            continue
        if isinstance(one.target, ast.Attribute) and _is_self(one.target):
            yield one.target.attr, one.annotation
        elif isinstance(one.target, ast.Name) and one in node.body:
            yield one.target.id, one.annotation


def _named_without_value(node: ast.ClassDef) -> Iterator[str]:
    for one in ast.walk(node):
        if isinstance(one, ast.AnnAssign) and one.value is None:
            if isinstance(one.target, ast.Attribute) and _is_self(one.target):
                yield one.target.attr
            elif isinstance(one.target, ast.Name) and one in node.body:
                yield one.target.id


def _is_given(tree: Tree, one: Class) -> bool:
    """Return True when users give a class's fields: by its name, or as arguments of a consumer."""
    return tree.is_public(one) or one.where == "shardway.options.ConsumerOptions"


def option_fields(tree: Tree) -> dict[str, int]:
    """Return the number of public fields of each option class, and of each class that stands for a group of them, by
    the name of the class. Raises LookupError where there is no class of a name in `OPTIONS`.
    """
    counts: dict[str, int] = {}
    waiting = []
    for name in OPTIONS:
        alike = [one for one in tree.classes if one.name == name]
        if (described := next((one for one in alike if _is_given(tree, one)), None)) is None:
            raise LookupError(f"there is no public class {name}: name in OPTIONS the classes that replace it")
        waiting.append(described)
    while waiting:
        one = waiting.pop(0)
        if one.name in counts:
            continue
        public = [field for field in one.fields if not field.name.startswith("_")]
        counts[one.name] = len(public)
        kinds = (field.kind for field in public if not one.module.is_callback(field.kind))
        named = (found for kind in kinds for found in one.module.classes_in(kind))
        waiting += [found for found in named if found.is_value and tree.is_public(found) and found.name not in CHOICES]
    return counts


def _tidy() -> Any:
    """Return the module ``tests/test_tidy.py``, which has the rule of words."""
    place = ROOT / "tests" / "test_tidy.py"
    spec = importlib.util.spec_from_file_location("house_tidy", place)
    assert spec is not None, place
    assert spec.loader is not None, place
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def persons(tree: Tree) -> list[str]:
    """Return the lines of pages, comments and strings that name a person instead of a part, as ``path:number``."""
    tidy, root = _tidy(), tree.root
    named = (path for path in (root / "README.md", root / "CONTRIBUTING.md") if path.exists())
    pages = [*named, *sorted((root / "docs").rglob("*.md"))]
    found = []
    for path in [*pages, *(module.path for module in tree.modules.values())]:
        lines = {number for number, prose in tidy.prose_of(path) if tidy.PERSONS.search(prose)}
        found += [f"{path.relative_to(root)}:{number}" for number in sorted(lines)]
    return found


def _comments(module: Module) -> Iterator[tokenize.TokenInfo]:
    tokens = tokenize.generate_tokens(io.StringIO(module.text).readline)
    yield from (one for one in tokens if one.type == tokenize.COMMENT)


def comment_lines(tree: Tree) -> tuple[int, int]:
    """Return the number of lines that hold nothing but a comment, and the number of all lines."""
    alone = sum(one.line[: one.start[1]].strip() == "" for module in tree.modules.values() for one in _comments(module))
    return alone, sum(len(module.text.splitlines()) for module in tree.modules.values())


# --- the files that a record enters ---------------------------------------------------------------


class Walk:
    """The files of a package in which functions run, in all threads, while `counts` is set."""

    def __init__(self, package: Path, behind: Iterable[str] = BEHIND_PORTS) -> None:
        self.counts = False
        self.files: set[str] = set()
        self._package = f"{package}/"
        self._behind = tuple(f"{package}/{name}/" for name in behind)
        self._depth = threading.local()

    def __enter__(self) -> Walk:
        threading.setprofile(self._heard)
        sys.setprofile(self._heard)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)
        threading.setprofile(None)

    def begin(self) -> None:
        """Count from here on. The functions that have called this one go on, so they are counted now."""
        self.counts = True
        frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 - as in the standard library
        while frame is not None:
            self._enter(frame.f_code.co_filename)
            frame = frame.f_back

    def end(self) -> None:
        """Stop counting."""
        self.counts = False

    def _heard(self, frame: FrameType, event: str, _: Any) -> None:
        # The depth is the thread's number of frames behind a port: the first frame there, and those called from it.
        depth = getattr(self._depth, "value", 0)
        if event == "call":
            name = frame.f_code.co_filename
            if depth or name.startswith(self._behind):
                self._depth.value = depth + 1
            elif self.counts:
                self._enter(name)
        elif event == "return" and depth:
            self._depth.value = depth - 1

    def _enter(self, name: str) -> None:
        if name.startswith(self._package) and not name.startswith(self._behind):
            self.files.add(name.removeprefix(self._package))


async def consumer_walk() -> list[str]:
    """Return the files that one warm record enters in a consumer, as paths in the package. Raises RuntimeError when a
    round of the worker falls into each of the walks.
    """
    from shardway.core.shard.checkpoints import Prompt
    from shardway.options import CheckpointOptions, LeaseOptions, WorkerTimes
    from shardway.runtime.consumer.consumer import Consumer
    from shardway.stores.memory import MemoryLeaseTable
    from shardway.testing.memory_stream import MemoryStream

    walk = Walk(ROOT / "src" / PACKAGE)
    rounds = Counter[str]()
    stored = asyncio.Event()

    class Table(MemoryLeaseTable):
        async def scan(self, *, consistent: bool = False) -> Any:
            rounds["scan"] += 1
            return await super().scan(consistent=consistent)

        async def workers(self, *, consistent: bool = False) -> Any:
            rounds["workers"] += 1
            return await super().workers(consistent=consistent)

        async def write(self, write: Any) -> Any:
            outcome = await super().write(write)
            stored.set()
            return outcome

    stream = MemoryStream()
    source = stream.source()
    read = source.read

    async def watched(iterator: str, records_max: int) -> Any:
        page = await read(iterator, records_max)
        if page.records and wanted:
            walk.begin()
        return page

    source.read = watched  # type: ignore[method-assign]
    wanted: list[bool] = []
    options: dict[str, Any] = {
        "starting_position": "TRIM_HORIZON",
        "leases": LeaseOptions(table=Table(), failover_s=INTERVAL_S),
        "checkpoints": CheckpointOptions(cadence=Prompt()),
        "_times": WorkerTimes.of(INTERVAL_S, look_interval_s=INTERVAL_S / 5),
    }
    with walk:
        async with Consumer(source, application="house", **options) as consumer:
            batches = aiter(consumer)
            for number in range(WALKS_MAX + 1):
                stream.put({"number": number})
                batch = await anext(batches)
                before = rounds.copy()
                stored.clear()
                with batch:
                    pass
                async with asyncio.timeout(ANSWER_S):
                    await stored.wait()
                for _ in range(10):
                    await asyncio.sleep(0)  # the consumer hears the outcome of the write
                walk.end()
                if wanted and rounds == before:
                    return sorted(walk.files)
                walk.files.clear()
                wanted[:] = [True]
    raise RuntimeError(f"a round of the worker fell into each of {WALKS_MAX} walks")


class _Written(NamedTuple):
    shard_id: str | None
    sequence_number: str | None
    error_code: str | None = None
    error_message: str | None = None


async def producer_walk() -> list[str]:
    """Return the files that one warm record enters in a producer, as paths in the package."""
    from shardway.model import HASH_KEY_MAX, ListedShard, OutRecord
    from shardway.runtime.producer.producer import Producer

    walk = Walk(ROOT / "src" / PACKAGE)

    class Sink:
        stream = "house"
        number = 0

        def entry(self, data: bytes, partition_key: str, explicit_hash_key: str | None) -> Any:
            return data, partition_key, explicit_hash_key

        async def shards(self) -> list[ListedShard]:
            return [
                ListedShard(shard_id=SHARD_ID, first_hash_key=0, last_hash_key=HASH_KEY_MAX, first_sequence_number=0)
            ]

        async def put(self, entries: Any) -> list[_Written]:
            self.number += len(entries)
            return [_Written(SHARD_ID, str(self.number)) for _ in entries]

        async def close(self) -> None:
            return

    with walk:
        one: Producer[OutRecord] = Producer(Sink(), rng=random.Random(0))
        async with one as producer:
            await producer.put(OutRecord(b"first", "key"))
            walk.begin()
            handle = producer.put_nowait(OutRecord(b"second", "key"))
            await handle
            walk.end()
    return sorted(walk.files)


# --- the table ------------------------------------------------------------------------------------


def measures(root: Path, *, walks: bool = True) -> list[Measure]:
    """Return all figures of the repository at ``root``. Without ``walks`` those are left out for which a record is
    carried, by the package that is installed.
    """
    tree = Tree(root)
    arguments = argument_counts(tree)
    most = arguments[0][0] if arguments else 0
    options = option_fields(tree)
    alone, lines = comment_lines(tree)
    listed = exported(tree.modules[PACKAGE])

    def counted(name: str, goal: str, places: list[str]) -> Measure:
        return Measure(name, str(len(places)), goal, places)

    found = [counted("modules in src/shardway", "200 to 260", [*tree.modules])]
    if walks:
        found.append(counted("files that a warm record enters: consumer", "at most 18", asyncio.run(consumer_walk())))
        found.append(counted("files that a warm record enters: producer", "at most 14", asyncio.run(producer_walk())))
    return [
        *found,
        counted("internal constructors with three or more callbacks", "0", with_many_callbacks(tree)),
        Measure(
            "most arguments of an internal constructor", str(most), "7",
            [f"{name}: {count}" for count, name in arguments if count > 7],
        ),
        counted("late-bound neighbours", "0", late_bound(tree)),
        counted("slots for callbacks that other modules fill", "0", filled_slots(tree)),
        counted("lines that name persons, in src and docs", "0", persons(tree)),
        counted("names exported from shardway", "at most 60", listed),
        Measure(
            "public fields of the option classes", str(sum(options.values())), "at most 110",
            [f"{name}: {count}" for name, count in options.items()],
        ),
        Measure("lines with nothing but a comment", f"{alone / max(lines, 1):.1%}", "more", [f"{alone} of {lines}"]),
    ]  # fmt: skip


def main(arguments: list[str] | None = None) -> None:
    """Print the table of figures, and with ``--places`` the places that were counted."""
    parser = argparse.ArgumentParser(description="Prints measures of how the code is cut into parts.")
    parser.add_argument("--places", action="store_true", help="also list each place that is counted")
    given = parser.parse_args(arguments)
    found = measures(ROOT)
    width = max(len(one.name) for one in found)
    print(f"| {'measure':{width}} | {'now':>6} | {'goal':11} |")
    print(f"| {'-' * width} | {'-' * 5}: | {'-' * 11} |")
    for one in found:
        print(f"| {one.name:{width}} | {one.figure:>6} | {one.goal:11} |")
    if given.places:
        for one in found:
            print(f"\n{one.name}: {one.figure}")
            print("\n".join(f"  {place}" for place in one.places))


if __name__ == "__main__":
    main()
