"""Take an expression's text apart."""

from __future__ import annotations

import re
from typing import NamedTuple

from shardway.local.dynamodb.expressions.paths import Path, Step
from shardway.local.dynamodb.reserved_words import RESERVED

EXPRESSION_BYTES_MAX = 4096
OPERATORS_MAX = 300
INDEX_MAX = 2**31 - 1
_TOKEN = re.compile(
    r"\s*(?:(?P<name>[A-Za-z_][A-Za-z0-9_]*)|(?P<place>\#[A-Za-z0-9_]+)|(?P<value>:[A-Za-z0-9_]+)"
    r"|(?P<digits>[0-9]+)|(?P<sign><>|<=|>=|[=<>(),.\[\]+-])|(?P<other>\S))"
)
_OPERATORS = frozenset({"=", "<>", "<", "<=", ">", ">=", "+", "-", "AND", "OR", "NOT", "BETWEEN", "IN"})
END = "<EOF>"


class ExpressionError(Exception):
    """An expression is wrong. The text is AWS's, without the name of the parameter that has the expression."""


class Token(NamedTuple):
    """A word or sign with its kind and its place."""

    kind: str
    text: str
    begin: int
    end: int


class Tokens:
    """The tokens of one text, read from left to right. Raises ExpressionError for a text that is too long."""

    def __init__(self, text: str) -> None:
        if not text:
            raise ExpressionError("The expression can not be empty;")
        size = len(text.encode())
        if size > EXPRESSION_BYTES_MAX:
            raise ExpressionError(f"Expression size has exceeded the maximum allowed size; expression size: {size}")
        self._text = text
        self._tokens = [
            Token(str(found.lastgroup), found[str(found.lastgroup)], *found.span(str(found.lastgroup)))
            for found in _TOKEN.finditer(text)
        ]
        self._tokens.append(Token("end", END, len(text), len(text)))
        self._place = 0
        operators = sum(token.text.upper() in _OPERATORS for token in self._tokens if token.kind in ("sign", "name"))
        if operators > OPERATORS_MAX:
            raise ExpressionError(f"The expression contains too many operators; operator count: {OPERATORS_MAX + 1}")

    @property
    def next(self) -> Token:
        """The token that is read next."""
        return self._tokens[self._place]

    def after_next(self) -> str:
        """Return the text of the token after the next one."""
        return self._tokens[min(self._place + 1, len(self._tokens) - 1)].text

    def take(self) -> Token:
        """Read the next token."""
        token = self._tokens[self._place]
        self._place = min(self._place + 1, len(self._tokens) - 1)
        return token

    def take_if(self, text: str) -> bool:
        """Read the next token if it is this sign."""
        if self._tokens[self._place].text != text:
            return False
        self._place += 1
        return True

    def take_word(self, word: str) -> bool:
        """Read the next token if it is this word, in letters of either case."""
        token = self._tokens[self._place]
        if token.kind != "name" or token.text.upper() != word:
            return False
        self._place += 1
        return True

    def expect(self, text: str) -> None:
        """Read this sign. Raises ExpressionError for another."""
        if not self.take_if(text):
            raise self.wrong()

    def expect_end(self) -> None:
        """Raise ExpressionError unless all is read."""
        if self.next.kind != "end":
            raise self.wrong()

    def wrong(self) -> ExpressionError:
        """Return the error that the next token may not stand where it stands."""
        at = self._place
        token = self._tokens[at]
        begin = self._tokens[at - 1].begin if at else (0 if token.kind == "end" else token.begin)
        end = self._tokens[min(at + 1, len(self._tokens) - 1)]
        last = end.end if end.kind != "end" or token.kind == "end" else token.end
        return ExpressionError(f'Syntax error; token: "{token.text}", near: "{self._text[begin:last]}"')

    def path(self) -> Path:
        """Read a document path: ``a.b[3].#c``. Raises ExpressionError."""
        steps: list[Step] = [self._step()]
        while True:
            if self.take_if("."):
                steps.append(self._step())
            elif self.take_if("["):
                if self.next.kind != "digits":
                    raise self.wrong()
                digits = self.take().text
                if len(digits) > len(str(INDEX_MAX)) or int(digits) > INDEX_MAX:
                    raise ExpressionError(f"List index is not within the allowable range; index: [{digits}]")
                steps.append(int(digits))
                self.expect("]")
            else:
                return Path(tuple(steps))

    def _step(self) -> str:
        token = self.next
        if token.kind not in ("name", "place"):
            raise self.wrong()
        if token.text.upper() in RESERVED:
            raise ExpressionError(f"Attribute name is a reserved keyword; reserved keyword: {token.text}")
        return self.take().text
