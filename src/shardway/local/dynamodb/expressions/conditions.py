"""What holds for an item or does not: the tree that a condition's text becomes.

`check` of a node raises ExpressionError when a value that the request gives has a type that its place does not take;
`holds` looks at an item, and never raises.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from shardway.local.dynamodb.attribute_values import SETS, TYPES, Item, Value, comparable, kind_of, text_bytes
from shardway.local.dynamodb.attribute_values import binary_bytes as blob_bytes
from shardway.local.dynamodb.expressions.paths import Path, shown
from shardway.local.dynamodb.expressions.placeholders import Scope
from shardway.local.dynamodb.expressions.tokens import ExpressionError

_ORDERED_TYPES = frozenset({"S", "N", "B"})
ORDERS: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


class Operand(Protocol):
    """What stands for a value."""

    def of(self, item: Item, scope: Scope) -> Value | None:
        """Return the value; None where the item has none."""

    def given(self, scope: Scope) -> Value | None:
        """Return the value that the request gives here; None for what the item has."""


class Node(Protocol):
    """What holds or does not."""

    def holds(self, item: Item, scope: Scope) -> bool:
        """Look at an item."""

    def check(self, scope: Scope) -> None:
        """Raise ExpressionError when a given value has a wrong type."""


class Attribute:
    """What the item has at a path."""

    __slots__ = ("path",)

    def __init__(self, path: Path) -> None:
        self.path = path

    def of(self, item: Item, scope: Scope) -> Value | None:
        """See `Operand`."""
        return self.path.find(item, scope.names)

    def given(self, scope: Scope) -> Value | None:  # noqa: ARG002 - an operand's method
        """See `Operand`."""
        return None


class Placeholder:
    """A ``:value`` of the request."""

    __slots__ = ("place",)

    def __init__(self, place: str) -> None:
        self.place = place

    def of(self, item: Item, scope: Scope) -> Value | None:  # noqa: ARG002 - an operand's method
        """See `Operand`."""
        return scope.values[self.place]

    def given(self, scope: Scope) -> Value | None:
        """See `Operand`."""
        return scope.values[self.place]


class Literal:
    """A value that a parameter older than expressions gives."""

    __slots__ = ("value",)

    def __init__(self, value: Value) -> None:
        self.value = value

    def of(self, item: Item, scope: Scope) -> Value | None:  # noqa: ARG002 - an operand's method
        """See `Operand`."""
        return self.value

    def given(self, scope: Scope) -> Value | None:  # noqa: ARG002 - an operand's method
        """See `Operand`."""
        return self.value


class Size:
    """The ``size`` of what is at a path."""

    __slots__ = ("operand",)

    def __init__(self, operand: Operand) -> None:
        self.operand = operand

    def of(self, item: Item, scope: Scope) -> Value | None:
        """See `Operand`."""
        value = self.operand.of(item, scope)
        if value is None:
            return None
        ((kind, content),) = value.items()
        if kind in ("BOOL", "NULL", "N"):
            return None
        size = text_bytes(content) if kind == "S" else blob_bytes(content) if kind == "B" else len(content)
        return {"N": str(size)}

    def given(self, scope: Scope) -> Value | None:  # noqa: ARG002 - an operand's method
        """See `Operand`."""
        return None


class Equal:
    """``a = b``, or with ``negated`` ``a <> b``, which holds for an attribute that is not there."""

    __slots__ = ("left", "negated", "right")

    def __init__(self, left: Operand, right: Operand, *, negated: bool = False) -> None:
        self.left = left
        self.right = right
        self.negated = negated

    def holds(self, item: Item, scope: Scope) -> bool:
        """See `Node`."""
        left, right = self.left.of(item, scope), self.right.of(item, scope)
        return (left is not None and left == right) != self.negated

    def check(self, scope: Scope) -> None:
        """See `Node`."""
        check_distinct("<>" if self.negated else "=", self.left, self.right, scope)


class Comparison:
    """``a < b`` and its like."""

    __slots__ = ("left", "right", "sign")

    def __init__(self, left: Operand, sign: str, right: Operand) -> None:
        self.left = left
        self.sign = sign
        self.right = right

    def holds(self, item: Item, scope: Scope) -> bool:
        """See `Node`."""
        return in_order(self.left.of(item, scope), self.sign, self.right.of(item, scope))

    def check(self, scope: Scope) -> None:
        """See `Node`."""
        check_distinct(self.sign, self.left, self.right, scope)
        check_types(self.sign, _ORDERED_TYPES, (self.left, self.right), scope)


class Range:
    """``a BETWEEN b AND c``."""

    __slots__ = ("high", "low", "operand")

    def __init__(self, operand: Operand, low: Operand, high: Operand) -> None:
        self.operand = operand
        self.low = low
        self.high = high

    def holds(self, item: Item, scope: Scope) -> bool:
        """See `Node`."""
        value = self.operand.of(item, scope)
        return in_order(self.low.of(item, scope), "<=", value) and in_order(value, "<=", self.high.of(item, scope))

    def check(self, scope: Scope) -> None:
        """See `Node`."""
        check_types("BETWEEN", _ORDERED_TYPES, (self.operand, self.low, self.high), scope)
        low, high = self.low.given(scope), self.high.given(scope)
        if low is None or high is None:
            return
        same = kind_of(low) == kind_of(high)
        if same and in_order(low, "<=", high):
            return
        rule = (
            "upper bound to be greater than or equal to lower bound"
            if same
            else ("same data type for lower and upper bounds")
        )
        raise ExpressionError(
            f"The BETWEEN operator requires {rule}; lower bound operand: AttributeValue: {_value_text(low)}, "
            f"upper bound operand: AttributeValue: {_value_text(high)}"
        )


class In:
    """``a IN (b, c)``."""

    __slots__ = ("operand", "operands")

    def __init__(self, operand: Operand, operands: Sequence[Operand]) -> None:
        self.operand = operand
        self.operands = operands

    def holds(self, item: Item, scope: Scope) -> bool:
        """See `Node`."""
        value = self.operand.of(item, scope)
        return value is not None and any(value == one.of(item, scope) for one in self.operands)

    def check(self, scope: Scope) -> None:
        """See `Node`."""


class Exists:
    """``attribute_exists(a)``, or with ``negated`` ``attribute_not_exists(a)``."""

    __slots__ = ("negated", "operand")

    def __init__(self, operand: Operand, *, negated: bool = False) -> None:
        self.operand = operand
        self.negated = negated

    def holds(self, item: Item, scope: Scope) -> bool:
        """See `Node`."""
        return (self.operand.of(item, scope) is None) == self.negated

    def check(self, scope: Scope) -> None:
        """See `Node`."""


class HasType:
    """``attribute_type(a, :type)``."""

    __slots__ = ("kind", "operand")

    def __init__(self, operand: Operand, kind: Operand) -> None:
        self.operand = operand
        self.kind = kind

    def holds(self, item: Item, scope: Scope) -> bool:
        """See `Node`."""
        value, kind = self.operand.of(item, scope), self.kind.given(scope)
        return value is not None and kind is not None and kind_of(value) == kind.get("S")

    def check(self, scope: Scope) -> None:
        """See `Node`."""
        check_types("attribute_type", frozenset("S"), (self.kind,), scope)
        kind = self.kind.given(scope)
        if kind is None or kind["S"] not in TYPES:
            name = "" if kind is None else kind["S"][:100]
            types = "{B,NULL,SS,BOOL,L,BS,N,NS,S,M}"
            raise ExpressionError(f"Invalid attribute type name found; type: {name}, valid types: {types}")


class BeginsWith:
    """``begins_with(a, b)``."""

    __slots__ = ("operand", "prefix")

    def __init__(self, operand: Operand, prefix: Operand) -> None:
        self.operand = operand
        self.prefix = prefix

    def holds(self, item: Item, scope: Scope) -> bool:
        """See `Node`."""
        value, prefix = self.operand.of(item, scope), self.prefix.of(item, scope)
        if value is None or prefix is None or kind_of(value) != kind_of(prefix) or kind_of(value) not in ("S", "B"):
            return False
        return bool(comparable(value).startswith(comparable(prefix)))

    def check(self, scope: Scope) -> None:
        """See `Node`."""
        check_types("begins_with", frozenset("SB"), (self.operand, self.prefix), scope)


class Contains:
    """``contains(a, b)``: a part of a text, a member of a set, an element of a list."""

    __slots__ = ("operand", "part")

    def __init__(self, operand: Operand, part: Operand) -> None:
        self.operand = operand
        self.part = part

    def holds(self, item: Item, scope: Scope) -> bool:
        """See `Node`."""
        value, part = self.operand.of(item, scope), self.part.of(item, scope)
        return value is not None and part is not None and contains(value, part)

    def check(self, scope: Scope) -> None:
        """See `Node`."""
        check_distinct("contains", self.operand, self.part, scope)


class Not:
    """``NOT a``."""

    __slots__ = ("node",)

    def __init__(self, node: Node) -> None:
        self.node = node

    def holds(self, item: Item, scope: Scope) -> bool:
        """See `Node`."""
        return not self.node.holds(item, scope)

    def check(self, scope: Scope) -> None:
        """See `Node`."""
        self.node.check(scope)


class Every:
    """``a AND b``."""

    __slots__ = ("nodes",)

    def __init__(self, nodes: Sequence[Node]) -> None:
        self.nodes = nodes

    def holds(self, item: Item, scope: Scope) -> bool:
        """See `Node`."""
        return all(node.holds(item, scope) for node in self.nodes)

    def check(self, scope: Scope) -> None:
        """See `Node`."""
        for node in self.nodes:
            node.check(scope)


class Some:
    """``a OR b``."""

    __slots__ = ("nodes",)

    def __init__(self, nodes: Sequence[Node]) -> None:
        self.nodes = nodes

    def holds(self, item: Item, scope: Scope) -> bool:
        """See `Node`."""
        return any(node.holds(item, scope) for node in self.nodes)

    def check(self, scope: Scope) -> None:
        """See `Node`."""
        for node in self.nodes:
            node.check(scope)


def in_order(left: Value | None, sign: str, right: Value | None) -> bool:
    """Return whether two values of one type are in this order."""
    if left is None or right is None:
        return False
    kind = kind_of(left)
    return kind in _ORDERED_TYPES and kind == kind_of(right) and ORDERS[sign](comparable(left), comparable(right))


def contains(value: Value, part: Value) -> bool:
    """Return whether a value contains another one."""
    ((kind, content),) = value.items()
    ((part_kind, part_content),) = part.items()
    if kind == "L":
        return part in content
    if kind in SETS:
        return SETS[kind] == part_kind and part_content in content
    if kind != part_kind or kind not in ("S", "B"):
        return False
    return bool(comparable(part) in comparable(value))


def check_types(name: str, kinds: frozenset[str], operands: Sequence[Operand], scope: Scope) -> None:
    """Raise ExpressionError when an operand is a given value of another type than these."""
    for one in operands:
        value = one.given(scope)
        if value is not None and kind_of(value) not in kinds:
            raise ExpressionError(
                "Incorrect operand type for operator or function; "
                f"operator or function: {name}, operand type: {kind_of(value)}"
            )


def check_distinct(name: str, left: Operand, right: Operand, scope: Scope) -> None:
    """Raise ExpressionError when an attribute is compared with itself."""
    if isinstance(left, Attribute) and isinstance(right, Attribute):
        steps = left.path.resolved(scope.names)
        if steps == right.path.resolved(scope.names):
            raise ExpressionError(
                "The first operand must be distinct from the remaining operands for this operator or function; "
                f"operator: {name}, first operand: {shown(steps)}"
            )


def _value_text(value: Value) -> str:
    ((kind, content),) = value.items()
    return f"{{{kind}:{str(content)[:100]}}}"
