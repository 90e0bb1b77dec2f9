"""Make an update of its text."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from shardway.local.dynamodb.expressions.conditions import Attribute, Operand, Placeholder
from shardway.local.dynamodb.expressions.paths import Path
from shardway.local.dynamodb.expressions.tokens import ExpressionError, Tokens
from shardway.local.dynamodb.expressions.updates import Concatenation, IfAbsent, Plain, Source, Sum, Update

PARSED_MAX = 1024
DEPTH_MAX = 100
_SECTIONS = ("SET", "REMOVE", "ADD", "DELETE")
_OTHER_FUNCTIONS = frozenset(
    {"attribute_exists", "attribute_not_exists", "attribute_type", "begins_with", "contains", "size"}
)


class ParsedUpdate(NamedTuple):
    """An update, and the ``#names`` and ``:values`` that it uses."""

    update: Update
    names: frozenset[str]
    values: frozenset[str]


@lru_cache(maxsize=PARSED_MAX)
def parse_update(text: str) -> ParsedUpdate:
    """Return the update. Raises ExpressionError."""
    parser = _Parser(Tokens(text))
    return ParsedUpdate(parser.whole(), frozenset(parser.names), frozenset(parser.values))


class _Parser:
    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens
        self._depth = 0
        self.names: set[str] = set()
        self.values: set[str] = set()

    def whole(self) -> Update:
        tokens = self._tokens
        sets: list[tuple[Path, Source]] = []
        removes: list[Path] = []
        adds: list[tuple[Path, Operand]] = []
        deletes: list[tuple[Path, Operand]] = []
        seen: set[str] = set()
        while tokens.next.kind != "end" or not seen:
            section = next((name for name in _SECTIONS if tokens.take_word(name)), None)
            if section is None:
                raise tokens.wrong()
            if section in seen:
                raise ExpressionError(f'The "{section}" section can only be used once in an update expression;')
            seen.add(section)
            while True:
                path = self._path()
                if section == "SET":
                    tokens.expect("=")
                    sets.append((path, self._source()))
                elif section == "REMOVE":
                    removes.append(path)
                else:
                    (adds if section == "ADD" else deletes).append((path, self._placeholder()))
                if not tokens.take_if(","):
                    break
        return Update(tuple(sets), tuple(removes), tuple(adds), tuple(deletes))

    def _source(self) -> Source:
        left = self._operand()
        for sign in ("+", "-"):
            if isinstance(left, Sum) and self._tokens.next.text == sign:
                raise self._tokens.wrong()
            if self._tokens.take_if(sign):
                return Sum(left, self._operand(), minus=sign == "-")
        return left

    def _operand(self) -> Source:
        tokens = self._tokens
        if tokens.next.kind == "value":
            return Plain(self._placeholder())
        if tokens.next.text == "(":
            self._enter()
            tokens.take()
            found = self._source()
            tokens.expect(")")
            self._depth -= 1
            return found
        if tokens.next.kind == "name" and tokens.after_next() == "(":
            return self._function()
        return Plain(Attribute(self._path()))

    def _function(self) -> Source:
        tokens = self._tokens
        name = tokens.take().text
        if name in _OTHER_FUNCTIONS:
            raise ExpressionError(f"The function is not allowed in an update expression; function: {name}")
        if name not in ("if_not_exists", "list_append"):
            raise ExpressionError(f"Invalid function name; function: {name}")
        self._enter()
        tokens.expect("(")
        operands = [self._operand()]
        while tokens.take_if(","):
            operands.append(self._operand())
        tokens.expect(")")
        self._depth -= 1
        if len(operands) != 2:
            raise ExpressionError(
                "Incorrect number of operands for operator or function; "
                f"operator or function: {name}, number of operands: {len(operands)}"
            )
        first, second = operands
        if name == "list_append":
            return Concatenation(first, second)
        if not isinstance(first, Plain) or not isinstance(first.operand, Attribute):
            raise ExpressionError(f"Operator or function requires a document path; operator or function: {name}")
        return IfAbsent(first.operand.path, second)

    def _enter(self) -> None:
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise ExpressionError(f"The expression has more than {DEPTH_MAX} functions and parentheses in each other")

    def _placeholder(self) -> Operand:
        if self._tokens.next.kind != "value":
            raise self._tokens.wrong()
        place = self._tokens.take().text
        self.values.add(place)
        return Placeholder(place)

    def _path(self) -> Path:
        path = self._tokens.path()
        self.names.update(path.places())
        return path
