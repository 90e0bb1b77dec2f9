"""Parse a small language that chooses records: ``.amount >= 10 and (key == "a" or not .test)``.

The language has no loops and no calls, and each operator takes time linear in the record, so no filter runs for ever.
A pattern (``=~``) is searched by RE2, which takes linear time, too.

::

    text    what to look at: key, shard, size, text, or a path into JSON: .customer.id, .items[0].price
    test    text OPERATOR value: ==  !=  <  <=  >  >=  contains  startswith  =~
            a path alone is true where the record has it, and it is neither null nor false
    whole   test, and, or, not, ( )
    value   "text", number, true, false, null
"""

from __future__ import annotations

import json
import operator as operators
import re
from typing import TYPE_CHECKING, Any

from shardway.core.unicode import writable
from shardway.errors import OptionError
from shardway.shown import one_line

if TYPE_CHECKING:
    from collections.abc import Callable

    from shardway.inspect.records.seen_records import SeenRecord

    Test = Callable[["SeenRecord"], bool]
    Look = Callable[["SeenRecord"], Any]

CHARACTERS_MAX = 4_096
DEPTH_MAX = 50

_TOKEN = re.compile(
    r"\s*(?:(?P<text>\"(?:[^\"\\]|\\.)*\")"
    r"|(?P<number>-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?)"
    r"|(?P<sign>==|!=|<=|>=|=~|<|>|\(|\))"
    r"|(?P<path>(?:\.[A-Za-z_][\w-]*|\[\d+\])+)"
    r"|(?P<word>[A-Za-z_]+))"
)
_FIELDS: dict[str, Look] = {
    "key": lambda record: record.partition_key,
    "shard": lambda record: record.shard_id,
    "size": lambda record: len(record.data),
    "text": lambda record: record.decoded.text or "",
}
_WORDS = {"true": True, "false": False, "null": None}
_STEP = re.compile(r"\.([A-Za-z_][\w-]*)|\[(\d+)\]")
_NO_VALUE = object()


def parse(text: str) -> Test:
    """Return the filter that a text describes. Raises OptionError, which shows the place of the fault."""
    if len(text) > CHARACTERS_MAX:
        raise OptionError(f"the filter has {len(text)} characters; at most {CHARACTERS_MAX} are taken")
    parser = _Parser(text)
    test = parser.whole(0)
    parser.end()
    return test


def pattern(text: str) -> Callable[[str], bool]:
    """Return a search for a pattern by RE2. Raises OptionError without the package, or for what is no pattern."""
    try:
        import re2  # it has no types
    except ImportError:
        raise OptionError("a pattern needs RE2, which takes linear time: pip install 'shardway[inspect]'") from None
    options = re2.Options()
    options.log_errors = False  # RE2 itself would write a bad pattern to standard error, with its escape sequences
    try:
        compiled = re2.compile(writable(text), options)
    except re2.error as fault:
        told = fault.args[0] if fault.args else fault
        why = told.decode(errors="replace") if isinstance(told, bytes) else str(told)
        raise OptionError(f"{text!r} is no pattern: {one_line(why)}") from None
    return lambda value: compiled.search(value) is not None


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens: list[tuple[str, str, int]] = []
        at = 0
        while text[at:].strip():
            match = _TOKEN.match(text, at)
            if match is None or match.lastgroup is None:
                raise self._fault(
                    len(text) - len(text[at:].lstrip()), "a field, a path, a value or an operator is wanted"
                )
            self._tokens.append((match.lastgroup, match[match.lastgroup], match.start(match.lastgroup)))
            at = match.end()
        self._next_token = 0

    def whole(self, depth: int) -> Test:
        if depth > DEPTH_MAX:
            raise self._fault(self._place, f"more than {DEPTH_MAX} levels")
        tests = [self._conjunction(depth)]
        while self._takes("word", "or"):
            tests.append(self._conjunction(depth))
        return tests[0] if len(tests) == 1 else lambda record: any(test(record) for test in tests)

    def end(self) -> None:
        if self._next_token < len(self._tokens):
            raise self._fault(self._place, "the filter should end here, or go on with and, or")

    def _conjunction(self, depth: int) -> Test:
        tests = [self._one(depth)]
        while self._takes("word", "and"):
            tests.append(self._one(depth))
        return tests[0] if len(tests) == 1 else lambda record: all(test(record) for test in tests)

    def _one(self, depth: int) -> Test:
        denied = False
        while self._takes("word", "not"):
            denied = not denied
        if self._takes("sign", "("):
            test = self.whole(depth + 1)
            if not self._takes("sign", ")"):
                raise self._fault(self._place, "a ) is wanted")
        else:
            test = self._test()
        return (lambda record: not test(record)) if denied else test

    def _test(self) -> Test:
        look = self._look()
        kind, word, _ = self._peek()
        if (kind == "sign" and word not in "()") or (kind == "word" and word in ("contains", "startswith")):
            self._next_token += 1
            return _comparison(look, word, self._value())
        return lambda record: all(look(record) is not one for one in (_NO_VALUE, None, False))

    def _look(self) -> Look:
        kind, word, place = self._peek()
        self._next_token += 1
        if kind == "path":
            steps = [int(index) if index else name for name, index in _STEP.findall(word)]
            return lambda record: _follow(record, steps)
        if kind == "word" and word in _FIELDS:
            return _FIELDS[word]
        raise self._fault(place, f"a path like .customer.id is wanted, or one of {', '.join(_FIELDS)}")

    def _value(self) -> Any:
        kind, word, place = self._peek()
        self._next_token += 1
        if kind == "word" and word in _WORDS:
            return _WORDS[word]
        if kind in ("text", "number"):
            try:
                value = json.loads(word)
                return writable(value) if isinstance(value, str) else value
            except ValueError:
                raise self._fault(place, "a text is written as in JSON") from None
        raise self._fault(place, 'a value is wanted: "text", a number, true, false or null')

    def _takes(self, kind: str, word: str) -> bool:
        found = self._peek()[:2] == (kind, word)
        self._next_token += found
        return found

    def _peek(self) -> tuple[str, str, int]:
        return self._tokens[self._next_token] if self._next_token < len(self._tokens) else ("end", "", len(self._text))

    @property
    def _place(self) -> int:
        return self._peek()[2]

    def _fault(self, place: int, why: str) -> OptionError:
        return OptionError(f"the filter cannot be read at character {place + 1}: {why}")


def _follow(record: SeenRecord, steps: list[str | int]) -> Any:
    value = record.decoded.value if record.decoded.is_json else _NO_VALUE
    for step in steps:
        if isinstance(step, int):
            value = value[step] if isinstance(value, list) and step < len(value) else _NO_VALUE
        else:
            value = value.get(step, _NO_VALUE) if isinstance(value, dict) else _NO_VALUE
    return value


def _comparison(look: Look, operator: str, wanted: Any) -> Test:
    if operator == "==":
        return lambda record: _is_same(look(record), wanted)
    if operator == "!=":
        return lambda record: not _is_same(look(record), wanted)
    if operator in ("contains", "startswith", "=~"):
        if not isinstance(wanted, str):
            raise OptionError(f"{operator} takes a text in quotes")
        if operator == "=~":
            search = pattern(wanted)
            return lambda record: isinstance(value := look(record), str) and search(value)
        if operator == "startswith":
            return lambda record: isinstance(value := look(record), str) and value.startswith(wanted)
        return lambda record: _contains(look(record), wanted)
    if isinstance(wanted, bool) or not isinstance(wanted, int | float | str):
        raise OptionError(f"{operator} takes a number, or a text in quotes")
    chosen = _ORDERS[operator]
    return lambda record: _comparable(value := look(record), wanted) and chosen(value, wanted)


_ORDERS: dict[str, Callable[[Any, Any], bool]] = {
    "<": operators.lt,
    "<=": operators.le,
    ">": operators.gt,
    ">=": operators.ge,
}


def _contains(value: Any, wanted: str) -> bool:
    if isinstance(value, list):
        return wanted in (one for one in value if isinstance(one, str))
    return isinstance(value, str) and wanted in value


def _is_same(value: Any, wanted: Any) -> bool:
    return isinstance(value, bool) == isinstance(wanted, bool) and value == wanted


def _comparable(value: Any, wanted: Any) -> bool:
    if isinstance(wanted, str):
        return isinstance(value, str)
    return isinstance(value, int | float) and not isinstance(value, bool)
