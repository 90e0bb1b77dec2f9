"""Job files: TOML in, a checked job out, or every fault with its line."""

from __future__ import annotations

import datetime as dt
import os
import re
import tomllib
import types
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Union, get_args, get_origin, get_type_hints

import msgspec

from penstock.core.withdrawn import JOB_FIELDS, is_called
from penstock.pipeline.job import model
from penstock.pipeline.job.faults import Fault, JobFileError, line_of, lines_of, nearest
from penstock.pipeline.job.model import Job
from penstock.pipeline.job.rules import faults_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.pipeline.job.faults import KeyPath

# --- values from the environment ------------------------------------------------------------------
# Values from the environment, ``${NAME}`` and ``${NAME:-default}``, and what of them must never be shown.

_REFERENCE = re.compile(r"\$\$\{|\$\{([A-Za-z_]\w*)(:-([^}]*))?\}|\$\{")
_SECRET_NAME = re.compile(r"secret|passw|pwd|token|credential|access_?key|api_?key|private|auth", re.IGNORECASE)
_SHOWN = "***"
_SHORTEST = 3
"""A shorter secret would blot out half of every message, and hide nothing."""


class Secrets:
    """Texts that stand for something secret; takes them out of whatever is to be shown.

    Secret is: what the environment gave for a value in ``options`` or ``spark``; what it gave for a name that looks
    like a secret's, wherever it stands; and the value of an option or setting with such a name.
    """

    def __init__(self) -> None:
        self._texts: set[str] = set()
        self.options: set[str] = set()
        """Names of the options that hold one, for Spark's own redaction of plans."""

    def add(self, text: str, path: KeyPath) -> None:
        """Never show this text."""
        if len(text) >= _SHORTEST:
            self._texts.add(text)
        if path and isinstance(path[-1], str):
            self.options.add(path[-1])

    def hide(self, text: str) -> str:
        """The text with stars in place of every secret."""
        for secret in sorted(self._texts, key=len, reverse=True):
            text = text.replace(secret, _SHOWN)
        return text

    def __repr__(self) -> str:
        return f"Secrets({len(self._texts)})"


def looks_secret(name: str) -> bool:
    """True for names like ``password`` or ``AWS_SECRET_ACCESS_KEY``."""
    return _SECRET_NAME.search(name) is not None


def filled_in(
    tree: Any, environment: Mapping[str, str], secrets: Secrets, faults: list[Fault], path: KeyPath = ()
) -> Any:
    """The parsed file with its references replaced. ``$${`` stands for ``${`` itself."""
    if isinstance(tree, dict):
        return {name: filled_in(value, environment, secrets, faults, (*path, name)) for name, value in tree.items()}
    if isinstance(tree, list):
        return [filled_in(value, environment, secrets, faults, (*path, at)) for at, value in enumerate(tree)]
    if isinstance(tree, dt.date | dt.time):
        return tree.isoformat()
    hidden_place = "options" in path[:-1] or "stream" in path[:-1] or path[:1] == ("spark",)
    if isinstance(tree, str) and "${" in tree:
        tree = _replaced(tree, environment, secrets, faults, path, hidden_place=hidden_place)
    if hidden_place and isinstance(tree, str) and looks_secret(str(path[-1])):
        secrets.add(tree, path)
    return tree


def _replaced(
    text: str,
    environment: Mapping[str, str],
    secrets: Secrets,
    faults: list[Fault],
    path: KeyPath,
    *,
    hidden_place: bool,
) -> str:
    def replace(found: re.Match[str]) -> str:
        if found[0] == "$${":
            return "${"
        name, has_default, default = found[1], found[2], found[3]
        if name is None:
            faults.append(Fault(path, "${ is followed by no name and }: write ${NAME} or ${NAME:-default}, or $${"))
            return ""
        value = environment.get(name)
        if value is None or (value == "" and has_default):
            if not has_default:
                faults.append(Fault(path, f"the environment has no {name}{_near(name, environment)}"))
            return default or ""
        if hidden_place or looks_secret(name):
            secrets.add(value, path)
        return value

    return _REFERENCE.sub(replace, text)


def _near(name: str, environment: Mapping[str, str]) -> str:
    hint = nearest(name, list(environment))
    return hint if "did you mean" in hint else ""


# --- values of the right types --------------------------------------------------------------------
# From a parsed file to the structs of ``model``, with every fault found and not only the first.

_BAD = object()
_WORDS = {str: "text", int: "a whole number", float: "a number", bool: "true or false", dict: "a table"}


def converted(tree: Any, kind: type[msgspec.Struct], faults: list[Fault], path: KeyPath = ()) -> Any:
    """The struct; every fault goes to ``faults``.

    Where a field is wrong the struct is made without it, or with an empty text or array in its place, so that the rest
    of it can be looked at too. None where that cannot be.
    """
    if not isinstance(tree, dict):
        faults.append(Fault(path, f"must be a table, not {_named(tree)}"))
        return None
    values = good_values(tree, kind, faults, path)
    hints = get_type_hints(kind)
    for field in msgspec.structs.fields(kind):
        if field.required and field.name not in values and field.encode_name in tree:
            empty = {str: "", tuple: ()}.get(get_origin(hints[field.name]) or hints[field.name])
            values |= {} if empty is None else {field.name: empty}
    required = (field.name for field in msgspec.structs.fields(kind) if field.required)
    return kind(**values) if all(name in values for name in required) else None


def good_values(tree: dict[str, Any], kind: type[msgspec.Struct], faults: list[Fault], path: KeyPath) -> dict[str, Any]:
    """The fields of a struct that are right; every fault goes to ``faults``."""
    fields = {field.encode_name: field for field in msgspec.structs.fields(kind)}
    hints = get_type_hints(kind, include_extras=True)
    values: dict[str, Any] = {}
    for name, value in tree.items():
        if name not in fields:
            new = JOB_FIELDS.get((str(path[-1]) if path else "", name))
            what = f"there is no {name} here{nearest(name, fields)}" if new is None else is_called(new)
            faults.append(Fault((*path, name), what))
            continue
        found = _value(value, hints[fields[name].name], faults, (*path, name))
        if found is not _BAD:
            values[fields[name].name] = found
    for name, field in fields.items():
        if field.required and name not in tree and not _misspelt(name, tree, fields):
            faults.append(Fault(path, f"{name} is missing"))
    return values


def _value(value: Any, hint: Any, faults: list[Fault], path: KeyPath) -> Any:
    inner = _bare(hint)
    if isinstance(inner, type) and issubclass(inner, msgspec.Struct):
        found = converted(value, inner, faults, path)
        return _BAD if found is None else found
    if get_origin(inner) is tuple and isinstance(get_args(inner)[0], type) and isinstance(value, list):
        item = get_args(inner)[0]
        if issubclass(item, msgspec.Struct):
            if not value:
                faults.append(Fault(path, "must have at least one"))
            items = [_value(one, item, faults, (*path, at)) for at, one in enumerate(value)]
            return tuple(item() if one is _BAD else one for one in items)  # the others keep their numbers
    if inner == model.Options and isinstance(value, dict):
        wrong = {name: one for name, one in value.items() if not isinstance(one, str | int | float | bool)}
        faults += [
            Fault((*path, name), f"must be text, a number, true or false, not {_named(one)}")
            for name, one in wrong.items()
        ]
        return _BAD if wrong else value
    try:
        return msgspec.convert(value, hint, strict=not isinstance(value, str))
    except msgspec.ValidationError as error:
        faults.append(Fault(path, _plain(str(error), value, hint)))
        return _BAD


def _bare(hint: Any) -> Any:
    """A type without its remarks and without None."""
    if get_origin(hint) is Annotated:
        return _bare(get_args(hint)[0])
    if get_origin(hint) in (Union, types.UnionType):
        kinds = [kind for kind in get_args(hint) if kind is not type(None)]
        if len(kinds) == 1:
            return _bare(kinds[0])
    return hint


def _plain(error: str, value: Any, hint: Any) -> str:
    """What was wrong with a value, in our words; the value is not shown where it could be a secret."""
    bare = _bare(hint)
    if get_origin(bare) is not None and str(get_origin(bare)) == "typing.Literal":
        choices = [str(choice) for choice in get_args(bare)]
        near = nearest(value, choices) if isinstance(value, str) else ""
        near = near if "did you mean" in near else ""
        return f"must be {', '.join(choices[:-1])} or {choices[-1]}{near}"
    if "matching regex" in error:
        if "millisecond" in error:
            return f"must be a time span like {model.SPAN_EXAMPLE}: a number and seconds, minutes, hours or days"
        if r"\w.]*:" in error:
            return f"must be module:function, like {model.FUNCTION_EXAMPLE}"
        return "must be letters, digits, _, . and -, at most 100"
    if "length >= 1" in error:
        return "is empty" if isinstance(value, str | list) else error
    wanted = (
        "an array of texts"
        if get_origin(bare) is tuple
        else _WORDS.get(bare, _WORDS.get(get_origin(bare) or str, "text"))
    )
    return f"must be {wanted}, not {_named(value)}"


def _named(value: Any) -> str:
    for kind, word in ((bool, "true or false"), (str, "text"), (int, "a number"), (float, "a number")):
        if isinstance(value, kind):
            return word
    return "a table" if isinstance(value, dict) else "an array" if isinstance(value, list) else "a date"


def _misspelt(name: str, tree: dict[str, Any], fields: dict[str, Any]) -> bool:
    """True when an unknown name was told to mean this one: it is not missing too."""
    if any(new == name and old in tree for (_, old), new in JOB_FIELDS.items()):
        return True
    return any(f"did you mean {name}?" in nearest(given, fields) for given in tree if given not in fields)


# --- the file -------------------------------------------------------------------------------------

FILE_BYTES_MAX = 1024 * 1024
_STAND_INS: dict[str, Any] = {"name": "job", "checkpoint": "", "source": {}, "sinks": ()}
_AT_LINE = re.compile(r"\s*\(at line (\d+), column \d+\)|\s*\(at end of document\)")


@dataclass(frozen=True)
class JobFile:
    """A job, and the file that it came from."""

    job: Job
    path: Path
    secrets: Secrets
    lines: Mapping[KeyPath, int]

    @property
    def folder(self) -> Path:
        """Where schemas, queries and modules are looked for."""
        return self.path.resolve().parent

    def told(self, fault: Fault) -> str:
        """``job.toml:12: sinks[0].path: what``; without secrets."""
        return self.secrets.hide(_told(self.path, self.lines, fault))


def load_job(path: str | Path, environment: Mapping[str, str] | None = None) -> JobFile:
    """Read and check a job file. ``environment``: where ``${NAME}`` is looked up, by default this process's.

    Nothing is started and no service asked; modules that the job names are imported.
    Raises JobFileError with all faults, each with its line.
    """
    path = Path(path)
    text = _text_of(path)
    try:
        tree = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        found = _AT_LINE.search(str(error))
        line = int(found[1]) if found and found[1] else text.count("\n") + 1
        what = _AT_LINE.sub("", str(error))
        raise JobFileError([f"{path}:{line}: this is not TOML: {what[:1].lower()}{what[1:]}"]) from None
    where = lines_of(text)
    faults: list[Fault] = []
    secrets = Secrets()
    tree = filled_in(tree, os.environ if environment is None else environment, secrets, faults)
    wrong: list[Fault] = []
    values = good_values(tree, Job, wrong, ())
    # What a missing variable leaves behind is no second fault, nor is what follows from a wrong type.
    faults += [fault for fault in wrong if fault.path not in {missing.path for missing in faults}]
    job = Job(**{**_STAND_INS, **values})
    unknown = {field for field in Job.__struct_fields__ if field not in values and (field in tree or field == "source")}
    faults += [fault for fault in faults_of(job, path.resolve().parent, unknown) if not _follows(fault, faults)]
    if faults:
        ordered = sorted(dict.fromkeys(faults), key=lambda fault: line_of(where, fault.path))
        raise JobFileError([secrets.hide(_told(path, where, fault)) for fault in ordered])
    return JobFile(job, path, secrets, where)


def _follows(fault: Fault, others: Sequence[Fault]) -> bool:
    """True when a fault is about something of which another part is known to be wrong."""
    return any(
        fault.path and other.path and fault.path[: len(other.path)] == other.path[: len(fault.path)] for other in others
    )


def _text_of(path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise JobFileError([f"{path}: cannot be read: {error.strerror}"]) from None
    if len(data) > FILE_BYTES_MAX:
        raise JobFileError([f"{path}: a job file has at most {FILE_BYTES_MAX:,} bytes"])
    try:
        return data.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise JobFileError([f"{path}:{line}: this is not UTF-8"]) from None


def _told(path: Path, where: Mapping[KeyPath, int], fault: Fault) -> str:
    place = f"{fault.place}: " if fault.path else ""
    return f"{path}:{line_of(dict(where), fault.path)}: {place}{fault.what}"
