"""Change an item as an update says. All values are found in the item as it was before."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from shardway.local.dynamodb.attribute_values import (
    DEPTH_MAX,
    SETS,
    Item,
    Value,
    depth_of,
    kind_of,
    made_set,
)
from shardway.local.dynamodb.errors import validation
from shardway.local.dynamodb.expressions import conditions as made
from shardway.local.dynamodb.expressions.conditions import check_types
from shardway.local.dynamodb.expressions.paths import Path, Step, path_fault
from shardway.local.dynamodb.expressions.placeholders import Scope
from shardway.local.dynamodb.expressions.tokens import ExpressionError
from shardway.local.dynamodb.numbers import added

_NO_PATH = "The document path provided in the update expression is invalid for update"
_WRONG_TYPE = "An operand in the update expression has an incorrect data type"
_ABSENT = "The provided expression refers to an attribute that does not exist in the item"
_TYPE_NAMES = {
    "S": "STRING",
    "N": "NUMBER",
    "B": "BINARY",
    "SS": "STRING_SET",
    "NS": "NUMBER_SET",
    "BS": "BINARY_SET",
    "L": "LIST",
    "M": "MAP",
    "BOOL": "BOOLEAN",
    "NULL": "NULL",
}
_NOT_GIVEN: Item = {}


class Source(Protocol):
    """What a SET takes its value from."""

    def value(self, item: Item, scope: Scope) -> Value:
        """Return the value. Raises DynamoError when the item has none, or one of another type."""

    def check(self, scope: Scope) -> None:
        """Raise ExpressionError when a given value has a wrong type."""


class Plain:
    """A given value, or what the item has."""

    __slots__ = ("operand",)

    def __init__(self, operand: made.Operand) -> None:
        self.operand = operand

    def value(self, item: Item, scope: Scope) -> Value:
        """See `Source`."""
        found = self.operand.of(item, scope)
        if found is None:
            raise validation(_ABSENT)
        return found

    def check(self, scope: Scope) -> None:
        """See `Source`."""


class Sum:
    """``a + b``, or ``a - b``."""

    __slots__ = ("left", "minus", "right")

    def __init__(self, left: Source, right: Source, *, minus: bool) -> None:
        self.left = left
        self.right = right
        self.minus = minus

    def value(self, item: Item, scope: Scope) -> Value:
        """See `Source`."""
        left, right = self.left.value(item, scope), self.right.value(item, scope)
        if "N" not in left or "N" not in right:
            raise validation(_WRONG_TYPE)
        return {"N": added(left["N"], right["N"], minus=self.minus)}

    def check(self, scope: Scope) -> None:
        """See `Source`."""
        _check_sources("-" if self.minus else "+", "N", (self.left, self.right), scope)


class Concatenation:
    """``list_append(a, b)``."""

    __slots__ = ("left", "right")

    def __init__(self, left: Source, right: Source) -> None:
        self.left = left
        self.right = right

    def value(self, item: Item, scope: Scope) -> Value:
        """See `Source`."""
        left, right = self.left.value(item, scope), self.right.value(item, scope)
        if "L" not in left or "L" not in right:
            raise validation(_WRONG_TYPE)
        return {"L": left["L"] + right["L"]}

    def check(self, scope: Scope) -> None:
        """See `Source`."""
        _check_sources("list_append", "L", (self.left, self.right), scope)


class IfAbsent:
    """``if_not_exists(a, b)``."""

    __slots__ = ("other", "path")

    def __init__(self, path: Path, other: Source) -> None:
        self.path = path
        self.other = other

    def value(self, item: Item, scope: Scope) -> Value:
        """See `Source`."""
        found = self.path.find(item, scope.names)
        return self.other.value(item, scope) if found is None else found

    def check(self, scope: Scope) -> None:
        """See `Source`."""
        self.other.check(scope)


def _check_sources(name: str, kind: str, sources: tuple[Source, ...], scope: Scope) -> None:
    for source in sources:
        source.check(scope)
        if isinstance(source, Plain):
            check_types(name, frozenset({kind}), (source.operand,), scope)


class Update(NamedTuple):
    """The actions of an update, by their kind."""

    sets: tuple[tuple[Path, Source], ...] = ()
    removes: tuple[Path, ...] = ()
    adds: tuple[tuple[Path, made.Operand], ...] = ()
    deletes: tuple[tuple[Path, made.Operand], ...] = ()

    def paths(self) -> list[Path]:
        """Return the paths that change."""
        return [
            *(path for path, _ in self.sets),
            *self.removes,
            *(path for path, _ in self.adds),
            *(path for path, _ in self.deletes),
        ]

    def check(self, scope: Scope) -> None:
        """Raise ExpressionError when paths lie in each other, or a given value has a wrong type."""
        fault = path_fault([path.resolved(scope.names) for path in self.paths()])
        if fault is not None:
            raise ExpressionError(fault)
        for _, source in self.sets:
            source.check(scope)
        for name, actions, kinds in (("ADD", self.adds, {"N", *SETS}), ("DELETE", self.deletes, set(SETS))):
            for _, operand in actions:
                value = operand.given(scope)
                if value is not None and kind_of(value) not in kinds:
                    raise ExpressionError(
                        f"Incorrect operand type for operator or function; operator: {name}, "
                        f"operand type: {_TYPE_NAMES[kind_of(value)]}, typeSet: ALLOWED_FOR_{name}_OPERAND"
                    )

    def roots(self, scope: Scope) -> list[str]:
        """Return the names of the attributes that change, or that a change leads into."""
        return [path.root(scope.names) for path in self.paths()]

    def applied(self, item: Item, scope: Scope) -> Item:
        """Return the item as it is after the update. Raises DynamoError."""
        fresh = dict(item)
        elements: list[tuple[tuple[Step, ...], Value]] = []
        for path, source in self.sets:
            value = source.value(item, scope)
            if len(path.steps) == 1:
                fresh[path.root(scope.names)] = value
            else:
                elements.append((path.resolved(scope.names), value))
        for path, operand in self.adds:
            self._add(fresh, path, operand, scope)
        for path, operand in self.deletes:
            self._delete(fresh, path, operand, scope)
        # Elements beyond a list's end are appended in the order of their indexes.
        for steps, value in sorted(elements, key=lambda one: one[0]):
            _put(fresh, steps, value)
        self._remove(fresh, scope)
        return fresh

    def _remove(self, fresh: Item, scope: Scope) -> None:
        deep: list[tuple[Step, ...]] = []
        for path in self.removes:
            if len(path.steps) == 1:
                fresh.pop(path.root(scope.names), None)
            else:
                deep.append(path.resolved(scope.names))
        # From the last element to the first: the indexes are those of the list as it was.
        for steps in sorted(deep, reverse=True):
            _take(fresh, steps)

    def _add(self, fresh: Item, path: Path, operand: made.Operand, scope: Scope) -> None:
        old, value = path.find(fresh, scope.names), operand.of(_NOT_GIVEN, scope)
        assert value is not None
        ((kind, content),) = value.items()
        if old is None:
            result = value
        elif kind_of(old) != kind:
            raise validation(_WRONG_TYPE)
        elif kind == "N":
            result = {"N": added(old["N"], content)}
        else:
            result = made_set(kind, {*old[kind], *content})
        _put(fresh, path.resolved(scope.names), result)

    def _delete(self, fresh: Item, path: Path, operand: made.Operand, scope: Scope) -> None:
        old, value = path.find(fresh, scope.names), operand.of(_NOT_GIVEN, scope)
        assert value is not None
        if old is None:
            return
        ((kind, content),) = value.items()
        if kind_of(old) != kind:
            raise validation(_WRONG_TYPE)
        left = set(old[kind]) - set(content)
        if left:
            _put(fresh, path.resolved(scope.names), made_set(kind, left))
        else:
            _take(fresh, path.resolved(scope.names))


def _put(fresh: Item, steps: tuple[Step, ...], value: Value) -> None:
    """Put a value at a place. The maps and lists on the way are made anew: others share the old ones."""
    if len(steps) == 1:
        fresh[str(steps[0])] = value
        return
    if len(steps) - 1 + depth_of(value) > DEPTH_MAX:
        raise validation("Nesting Levels have exceeded supported limits")
    holder = _open_holder(fresh, steps)
    last = steps[-1]
    if isinstance(holder, list) and isinstance(last, int):
        holder[last : last + 1] = [value]  # beyond the end: appended
    elif isinstance(holder, dict) and isinstance(last, str):
        holder[last] = value
    else:
        raise validation(_NO_PATH)


def _take(fresh: Item, steps: tuple[Step, ...]) -> None:
    """Remove what is at a place."""
    if len(steps) == 1:
        fresh.pop(str(steps[0]), None)
        return
    holder = _open_holder(fresh, steps)
    last = steps[-1]
    if isinstance(holder, list) and isinstance(last, int):
        del holder[last : last + 1]
    elif isinstance(holder, dict) and isinstance(last, str):
        holder.pop(last, None)
    else:
        raise validation(_NO_PATH)


def _open_holder(fresh: Item, steps: tuple[Step, ...]) -> object:
    """Return the map or list that holds the last step, copied with all that is around it. Raises DynamoError."""
    name = str(steps[0])
    if name not in fresh:
        raise validation(_NO_PATH)
    fresh[name] = value = _copy(fresh[name])
    for step in steps[1:-1]:
        ((kind, content),) = value.items()
        if isinstance(step, int):
            if kind != "L" or step >= len(content):
                raise validation(_NO_PATH)
        elif kind != "M" or step not in content:
            raise validation(_NO_PATH)
        content[step] = value = _copy(content[step])
    return next(iter(value.values()))


def _copy(value: Value) -> Value:
    ((kind, content),) = value.items()
    if kind == "L":
        return {"L": list(content)}
    return {"M": dict(content)} if kind == "M" else {kind: content}
