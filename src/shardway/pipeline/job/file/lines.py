"""Find the line on which each value of a TOML text stands: the standard library's parser does not say.

That parser has read the text before, so it is valid, and this module only has to find its way: which key is where, and
what is inside of a string. A value's place is its path, names and numbers: ``("sinks", 1, "path")``.
"""

from __future__ import annotations

import re

KeyPath = tuple[str | int, ...]
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_BLANK = re.compile(r"(?:[ \t\r\n]|#[^\n]*)+")
_SPACE = re.compile(r"[ \t]+")
_PLAIN_VALUE = re.compile(r"[^,\]}\n#]*")
_STRING = re.compile(
    r'"""(?:\\.|(?!""").)*"""(?:"{0,2})' r"|'''(?:(?!''').)*'''(?:'{0,2})" r'|"(?:\\.|[^"\\])*"' r"|'[^']*'", re.DOTALL
)
_ESCAPES = {"b": "\b", "t": "\t", "n": "\n", "f": "\f", "r": "\r", '"': '"', "\\": "\\"}
_ESCAPE = re.compile(r'\\(?:u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|([btnfr"\\]))')


def lines_of(text: str) -> dict[KeyPath, int]:
    """Return the line (from 1) of every table, key and item of an array in a valid TOML text."""
    scanner = _Scanner(text.replace("\r\n", "\n"))
    scanner.document()
    return scanner.lines


def line_of(lines: dict[KeyPath, int], path: KeyPath) -> int:
    """Return the line of a path, or of the nearest thing around it; 1 where there is none."""
    while path:
        if path in lines:
            return lines[path]
        path = path[:-1]
    return 1


class _Scanner:
    def __init__(self, text: str) -> None:
        self._text = text
        self._place = 0
        self._line, self._counted_to = 1, 0
        self._items: dict[KeyPath, int] = {}
        """The number of the newest table of each array of tables, by the array's path."""
        self.lines: dict[KeyPath, int] = {}

    def document(self) -> None:
        """Find the lines of the whole text."""
        table: KeyPath = ()
        while self._skip(_BLANK) or self._place < len(self._text):
            if self._place >= len(self._text):
                return
            if self._text[self._place] == "[":
                table = self._header()
            else:
                self._pair(table)

    def _header(self) -> KeyPath:
        line, many = self._line_here(), self._text.startswith("[[", self._place)
        self._place += 2 if many else 1
        names = self._key()
        self._place += 2 if many else 1
        path: KeyPath = ()
        for name in names[:-1]:
            path = self._item_path((*path, name))
        last = (*path, names[-1])
        if many:
            self._items[last] = self._items.get(last, -1) + 1
            self.lines.setdefault(last, line)
        last = self._item_path(last)
        self._note(last, line)
        return last

    def _item_path(self, path: KeyPath) -> KeyPath:
        return (*path, self._items[path]) if path in self._items else path

    def _pair(self, table: KeyPath) -> None:
        line = self._line_here()
        path = (*table, *self._key())
        self._place += 1  # the sign =
        self._note(path, line)
        self._value(path)

    def _value(self, path: KeyPath) -> None:
        self._skip(_SPACE)
        opening = self._text[self._place]
        if opening in "\"'":
            self._skip(_STRING)
        elif opening == "[":
            self._place += 1
            number = 0
            while self._skip(_BLANK) or self._text[self._place] != "]":
                if self._text[self._place] == "]":
                    break
                if self._text[self._place] == ",":
                    self._place += 1
                    continue
                self._note((*path, number), self._line_here())
                self._value((*path, number))
                number += 1
            self._place += 1
        elif opening == "{":
            self._place += 1
            while self._skip(_BLANK) or self._text[self._place] != "}":
                if self._text[self._place] == "}":
                    break
                if self._text[self._place] == ",":
                    self._place += 1
                    continue
                self._pair(path)
            self._place += 1
        else:
            self._skip(_PLAIN_VALUE)

    def _key(self) -> list[str]:
        names = []
        while True:
            self._skip(_SPACE)
            names.append(self._name())
            self._skip(_SPACE)
            if self._text[self._place] != ".":
                return names
            self._place += 1

    def _name(self) -> str:
        start = self._place
        if self._text[start] in "\"'":
            self._skip(_STRING)
            name = self._text[start + 1 : self._place - 1]
            return _ESCAPE.sub(_unescape, name) if self._text[start] == '"' else name
        self._skip(_BARE_KEY)
        return self._text[start : self._place]

    def _note(self, path: KeyPath, line: int) -> None:
        for length in range(1, len(path) + 1):  # a dotted key stands for the tables in it too
            self.lines.setdefault(path[:length], line)

    def _skip(self, what: re.Pattern[str]) -> bool:
        found = what.match(self._text, self._place)
        if found is None or found.end() == self._place:
            return False
        self._place = found.end()
        return True

    def _line_here(self) -> int:
        self._line += self._text.count("\n", self._counted_to, self._place)
        self._counted_to = self._place
        return self._line


def _unescape(found: re.Match[str]) -> str:
    code = found[1] or found[2]
    return chr(int(code, 16)) if code else _ESCAPES[found[3]]
