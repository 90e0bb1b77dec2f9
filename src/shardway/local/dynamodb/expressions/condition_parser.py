"""Make a condition of its text."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from shardway.local.dynamodb.expressions import conditions as made
from shardway.local.dynamodb.expressions.paths import Path
from shardway.local.dynamodb.expressions.tokens import ExpressionError, Tokens

DEPTH_MAX = 100
"""How many parentheses and NOTs may lie in each other, beside the 300 operators of an expression."""
PARSED_MAX = 1024
"""The texts whose conditions are kept: a program has few texts, and sends each often."""
OPERANDS_MAX = 100
_COMPARES = frozenset({"=", "<>", "<", "<=", ">", ">="})
_FUNCTIONS = {
    "attribute_exists": 1,
    "attribute_not_exists": 1,
    "attribute_type": 2,
    "begins_with": 2,
    "contains": 2,
    "size": 1,
}


class Condition(NamedTuple):
    """A condition, and the ``#names`` and ``:values`` that it uses."""

    node: made.Node
    names: frozenset[str]
    values: frozenset[str]


@lru_cache(maxsize=PARSED_MAX)
def parse_condition(text: str) -> Condition:
    """Return the condition. Raises ExpressionError."""
    parser = _Parser(Tokens(text))
    node = parser.whole()
    return Condition(node, frozenset(parser.names), frozenset(parser.values))


class _Parser:
    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens
        self._depth = 0
        self._closed_just_now: object = None  # a second parenthesis around the same is redundant
        self.names: set[str] = set()
        self.values: set[str] = set()

    def whole(self) -> made.Node:
        node = self._node(self._disjunction())
        self._tokens.expect_end()
        return node

    def _disjunction(self) -> made.Node | made.Operand:
        first = self._conjunction()
        if not self._at_word("OR"):
            return first
        nodes = [self._node(first)]
        while self._tokens.take_word("OR"):
            nodes.append(self._node(self._conjunction()))
        return made.Some(nodes)

    def _conjunction(self) -> made.Node | made.Operand:
        first = self._one()
        if not self._at_word("AND"):
            return first
        nodes = [self._node(first)]
        while self._tokens.take_word("AND"):
            nodes.append(self._node(self._one()))
        return made.Every(nodes)

    def _at_word(self, word: str) -> bool:
        token = self._tokens.next
        return token.kind == "name" and token.text.upper() == word

    def _one(self) -> made.Node | made.Operand:
        negations = 0
        while self._tokens.take_word("NOT"):
            negations += 1
        found = self._comparison(self._primary())
        if not negations:
            return found
        node = self._node(found)
        return made.Not(node) if negations % 2 else made.Not(made.Not(node))

    def _node(self, found: made.Node | made.Operand) -> made.Node:
        """Return what holds or does not; an operand alone does neither."""
        if isinstance(found, made.Attribute | made.Placeholder | made.Size):
            raise self._tokens.wrong()
        return found  # type: ignore[return-value] # an operand is one of the three classes above

    def _operand(self) -> made.Operand:
        found = self._primary()
        if not isinstance(found, made.Attribute | made.Placeholder | made.Size):
            raise self._tokens.wrong()
        return found

    def _primary(self) -> made.Node | made.Operand:
        tokens = self._tokens
        if tokens.next.text == "(":
            return self._parentheses()
        if tokens.next.kind == "value":
            place = tokens.take().text
            self.values.add(place)
            return made.Placeholder(place)
        if tokens.next.kind == "name" and tokens.after_next() == "(":
            return self._function()
        return made.Attribute(self._path())

    def _parentheses(self) -> made.Node | made.Operand:
        tokens = self._tokens
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise ExpressionError(f"The expression has more than {DEPTH_MAX} parentheses in each other")
        tokens.expect("(")
        doubled = tokens.next.text == "("
        found = self._disjunction()
        if doubled and tokens.next.text == ")" and self._closed_just_now is found:
            raise ExpressionError("The expression has redundant parentheses;")
        tokens.expect(")")
        self._closed_just_now = found
        self._depth -= 1
        return found

    def _comparison(self, left: made.Node | made.Operand) -> made.Node | made.Operand:
        """Return the comparison that begins with this operand, if one does."""
        if not isinstance(left, made.Attribute | made.Placeholder | made.Size):
            return left
        tokens = self._tokens
        sign = tokens.next.text
        if sign in _COMPARES:
            tokens.take()
            right = self._operand()
            if sign in ("=", "<>"):
                return made.Equal(left, right, negated=sign == "<>")
            return made.Comparison(left, sign, right)
        if tokens.take_word("BETWEEN"):
            low = self._operand()
            if not tokens.take_word("AND"):
                raise tokens.wrong()
            return made.Range(left, low, self._operand())
        if tokens.take_word("IN"):
            tokens.expect("(")
            operands = self._operands()
            if len(operands) > OPERANDS_MAX:
                raise ExpressionError(
                    f"The IN operator is provided with too many operands; number of operands: {len(operands)}"
                )
            return made.In(left, operands)
        return left

    def _operands(self) -> list[made.Operand]:
        """Read operands and the parenthesis that ends them."""
        operands = [self._operand()]
        while self._tokens.take_if(","):
            operands.append(self._operand())
        self._tokens.expect(")")
        return operands

    def _function(self) -> made.Node | made.Operand:
        name = self._tokens.take().text
        if name not in _FUNCTIONS:
            raise ExpressionError(f"Invalid function name; function: {name}")
        self._tokens.expect("(")
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise ExpressionError(f"The expression has more than {DEPTH_MAX} functions and parentheses in each other")
        operands = self._operands()
        self._depth -= 1
        if len(operands) != _FUNCTIONS[name]:
            raise ExpressionError(
                "Incorrect number of operands for operator or function; "
                f"operator or function: {name}, number of operands: {len(operands)}"
            )
        first = operands[0]
        if name.startswith("attribute_") and not isinstance(first, made.Attribute):
            raise ExpressionError(f"Operator or function requires a document path; operator or function: {name}")
        match name:
            case "size":
                return made.Size(first)
            case "attribute_exists" | "attribute_not_exists":
                return made.Exists(first, negated=name == "attribute_not_exists")
            case "attribute_type":
                return made.HasType(first, operands[1])
            case "begins_with":
                return made.BeginsWith(first, operands[1])
            case _:
                return made.Contains(first, operands[1])

    def _path(self) -> Path:
        path = self._tokens.path()
        self.names.update(path.places())
        return path
