"""Read a job file: make a checked job of its TOML, or find every fault with its line. The rules between the fields of a
job are here too.
"""

from __future__ import annotations

import base64
import datetime as dt
import difflib
import json
import os
import re
import shlex
import tomllib
import types
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Union, get_args, get_origin, get_type_hints
from urllib.parse import quote, quote_plus

import msgspec

from shardway.errors import OptionError
from shardway.pipeline.hadoop_files import collide, identity
from shardway.pipeline.job import model
from shardway.pipeline.job.error_text import message_of
from shardway.pipeline.job.faults import Fault, JobFileError, line_of, lines_of, nearest
from shardway.pipeline.job.model import Job, as_options
from shardway.pipeline.job.packages import load_function
from shardway.pipeline.job.steps import KEPT
from shardway.pipeline.job.writing import FOLDER_FORMATS, KNOWN_FORMATS, is_folder, is_table, reserved_options
from shardway.spark.options import parse_read_options, parse_sink_options
from shardway.spark.ranges import SPARK_TYPES

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from shardway.pipeline.job.faults import KeyPath
    from shardway.pipeline.job.model import Scalar, Sink


# --- values from the environment ------------------------------------------------------------------
# This part fills in values from the environment, ``${NAME}`` and ``${NAME:-default}``, and hides what must never be
# shown of them.

_REFERENCE = re.compile(r"\$\$\{|\$\{([A-Za-z_]\w*)(:-([^}]*))?\}|\$\{")
_SECRET_NAME = re.compile(r"secret|passw|pwd|token|credential|access_?key|api_?key|private|auth", re.IGNORECASE)
_SHOWN = "***"
_PEM = re.compile(r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----.*?(?:-----END [A-Z0-9 ]*PRIVATE KEY-----|\Z)", re.DOTALL)
"""The pattern of a private key as text, wherever it comes from."""
_MISSPELT = 0.75
"""How near the name of a format is to one that is there, to be taken for that."""
_LINE_SHORTEST = 8
"""The least length of a line that is hidden for itself, where a secret has several."""
_SHORTEST = 3
"""The least length of a text that is hidden: a shorter secret would blot out half of every message, and hide nothing.
"""


class Secrets:
    """Keeps texts that stand for something secret, and takes them out of whatever is to be shown.

    Secret is: what the environment gave for a value in ``options`` or ``spark``; what it gave for a name that looks
    like a secret's, wherever it stands; and the value of an option or setting with such a name.
    """

    def __init__(self) -> None:
        self._texts: set[str] = set()
        self.options: set[str] = set()
        """Names of the options that hold a secret, for Spark's own redaction of plans."""

    def add(self, text: str, path: KeyPath) -> None:
        """Never show this text, in none of the forms in which messages quote it."""
        self._texts |= {form for form in _forms_of(text) if len(form) >= _SHORTEST}
        if path and isinstance(path[-1], str):
            self.options.add(path[-1])

    def hide(self, text: str) -> str:
        """Return the text with stars in place of every secret."""
        for secret in sorted(self._texts, key=len, reverse=True):
            text = text.replace(secret, _SHOWN)
        return _PEM.sub(_SHOWN, text)

    def __repr__(self) -> str:
        return f"Secrets({len(self._texts)})"


def _forms_of(text: str) -> set[str]:
    """Return a secret as messages may have it: stripped, a line of it, percent-encoded, in Base64, or as Python, JSON
    and a shell write it between quotes.
    """
    lines = [line.strip() for line in text.splitlines()]
    parts = {text, text.strip(), *(line for line in lines if len(line) >= _LINE_SHORTEST)}
    forms = set(parts)
    for part in parts:
        encoded, data = quote(part, safe=""), part.encode("utf-8", "surrogateescape")
        forms |= {quote(part), encoded, quote_plus(part), encoded.replace("%", "%25"), _small_hex(encoded)}
        forms |= {
            repr(part)[1:-1],
            repr(data)[2:-1],
            json.dumps(part)[1:-1],
            json.dumps(part, ensure_ascii=False)[1:-1],
        }
        forms |= {shlex.quote(part).strip("'"), part.replace("'", "\\'"), part.replace("'", "''")}
        forms.add(base64.b64encode(data).decode())
    return forms


def _small_hex(encoded: str) -> str:
    return re.sub(r"%[0-9A-F]{2}", lambda found: found[0].lower(), encoded)


def looks_secret(name: str) -> bool:
    """True for names like ``password`` or ``AWS_SECRET_ACCESS_KEY``."""
    return _SECRET_NAME.search(name) is not None


def filled_in(
    tree: Any, environment: Mapping[str, str], secrets: Secrets, faults: list[Fault], path: KeyPath = ()
) -> Any:
    """Return the parsed file with its references replaced. ``$${`` stands for ``${`` itself."""
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
# This part makes the structs of ``model`` from a parsed file, and finds every fault, and not only the first.

_BAD = object()
_WORDS = {str: "text", int: "a whole number", float: "a number", bool: "true or false", dict: "a table"}


def converted(tree: Any, kind: type[msgspec.Struct], faults: list[Fault], path: KeyPath = ()) -> Any:
    """Return the struct that a table describes; every fault goes to ``faults``.

    Where a field is wrong the struct is made without it, or with an empty text or array in its place, so that the rest
    of it can be looked at too. Return None where that cannot be.
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
    """Return the fields of a struct that are right; every fault goes to ``faults``."""
    fields = {field.encode_name: field for field in msgspec.structs.fields(kind)}
    hints = get_type_hints(kind, include_extras=True)
    values: dict[str, Any] = {}
    for name, value in tree.items():
        if name not in fields:
            faults.append(Fault((*path, name), f"there is no {name} here{nearest(name, fields)}"))
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
    """Return a type without its remarks and without None."""
    if get_origin(hint) is Annotated:
        return _bare(get_args(hint)[0])
    if get_origin(hint) in (Union, types.UnionType):
        kinds = [kind for kind in get_args(hint) if kind is not type(None)]
        if len(kinds) == 1:
            return _bare(kinds[0])
    return hint


def _plain(error: str, value: Any, hint: Any) -> str:
    """Return what was wrong with a value, in our words; the value is not shown where it could be a secret."""
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
    """True when the fault of an unknown name says that this one is meant: this one is not missing too."""
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
    payloads: bool = False
    """True where errors are to be shown with the values of rows that they have."""

    @property
    def folder(self) -> Path:
        """The folder in which schemas, queries and modules are looked for."""
        return self.path.resolve().parent

    def told_of(self, error: BaseException) -> str:
        """Return what an error says, in one line without secrets, and without values of rows unless they are wanted."""
        return self.secrets.hide(message_of(error, payloads=self.payloads))

    def told(self, fault: Fault) -> str:
        """Return a fault as ``job.toml:12: sinks[0].path: what``, without secrets."""
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


# --- rules between the fields ---------------------------------------------------------------------
# The rules between the fields can be checked without Spark.

# --- DDL ------------------------------------------------------------------------------------------
# This part looks at a schema's DDL without Spark: at the names and types of its fields, to find misspellings.
#
# Spark parses it in earnest when the job starts. This finds the usual faults before that, and knows the fields' names.

_TYPES = (
    "BOOLEAN", "TINYINT", "BYTE", "SMALLINT", "SHORT", "INT", "INTEGER", "BIGINT", "LONG", "FLOAT", "REAL", "DOUBLE",
    "DATE", "TIMESTAMP", "TIMESTAMP_NTZ", "TIMESTAMP_LTZ", "TIME", "STRING", "CHAR", "CHARACTER", "VARCHAR", "BINARY",
    "DECIMAL", "DEC", "NUMERIC", "INTERVAL", "ARRAY", "STRUCT", "MAP", "VARIANT", "GEOGRAPHY", "GEOMETRY",
)  # fmt: skip
_FIELD = re.compile(r"\s*(`(?:[^`]|``)+`|[^\s:`]+)\s*:?\s*(.*)", re.DOTALL)
_TYPE = re.compile(r"[A-Za-z_]+")


def ddl_faults(ddl: str) -> list[str]:
    """Return what is certainly wrong with a DDL text; an empty list says little."""
    if ddl.strip().startswith("{"):
        return ["must be DDL, like order_id STRING NOT NULL, amount DECIMAL(10,2)"]
    if not _balanced(ddl):
        return ["has brackets that do not match"]
    faults = []
    seen: set[str] = set()
    for text in _parts(ddl):
        found = _FIELD.fullmatch(text)
        if found is None or not text.strip():
            faults.append("has a field without a name (a comma too many?)")
            continue
        name, rest = _unquoted(found[1]), found[2].strip()
        kind = _TYPE.match(rest)
        if kind is None:
            faults.append(f"gives field {name} no type")
        elif kind[0].upper() not in _TYPES:
            near = nearest(kind[0], _TYPES)
            faults.append(f"gives field {name} the type {kind[0]}, which Spark has not{near}")
        if name.lower() in seen:
            faults.append(f"has two fields {name}")
        seen.add(name.lower())
    return faults


def field_names(ddl: str) -> list[str]:
    """Return the names of the fields, in order."""
    matches = (_FIELD.fullmatch(text) for text in _parts(ddl))
    return [_unquoted(found[1]) for found in matches if found is not None]


def _unquoted(name: str) -> str:
    return name[1:-1].replace("``", "`") if name.startswith("`") else name


def _parts(ddl: str) -> list[str]:
    """Return the texts between the commas that are in no bracket, no quotes and no backquotes."""
    parts, depth, quote, start = [], 0, "", 0
    for at, char in enumerate(ddl):
        if quote:
            quote = "" if char == quote else quote
        elif char in "'\"`":
            quote = char
        elif char in "(<":
            depth += 1
        elif char in ")>":
            depth -= 1
        elif char == "," and depth == 0:
            parts.append(ddl[start:at])
            start = at + 1
    return [*parts, ddl[start:]]


def _balanced(ddl: str) -> bool:
    bare = re.sub(r"'[^']*'|\"[^\"]*\"|`[^`]*`", "", ddl)
    depth: list[str] = []
    for char in bare:
        if char in "(<":
            depth.append(char)
        elif char in ")>" and (not depth or depth.pop() != {")": "(", ">": "<"}[char]):
            return False
    return not depth


# --- the rules ------------------------------------------------------------------------------------

_READS_ONCE = {"checkpointlocation"}


def faults_of(job: Job, folder: Path, unknown: Collection[str] = ()) -> list[Fault]:
    """Return every fault of a job. ``folder``: where its files are; ``unknown``: parts that are not known and are left
    out.
    """
    faults = [] if "source" in unknown else _source(job.source)
    if "decode" not in unknown:
        faults += _decode(job, folder)
        faults += [] if "dead_letters" in unknown or job.dead_letters is not None else _no_dead_letters(job)
    faults += _dead_letters(job)
    faults += _deduplicate(job, None if "decode" in unknown else _value_fields(job))
    faults += _transform(job, folder)
    for number, sink in enumerate(job.sinks):
        found = _sink(sink, folder) + (_partitions(job, sink) if "decode" not in unknown else [])
        faults += [fault._replace(path=("sinks", number, *fault.path)) for fault in found]
    faults += place_faults(job)
    if job.stamps is not None and job.stamps.window is not None and job.deduplicate is not None:
        faults.append(
            Fault(("stamps", "window"), "is given beside deduplicate: duplicates are removed once, by one of them")
        )
    if job.trigger.available_now and job.trigger.every is not None:
        faults.append(Fault(("trigger", "every"), "contradicts available_now, which reads what is there and ends"))
    return faults


def _source(given: Mapping[str, Scalar]) -> list[Fault]:
    faults = [
        Fault(("source", name), "stands beside [source], as checkpoint")
        for name in given
        if name.lower() in _READS_ONCE
    ]
    return faults + _option_faults(given, ("source",), lambda options: parse_read_options(options, streaming=True))


def _option_faults(
    given: Mapping[str, Scalar], path: KeyPath, parse: Callable[[dict[str, str]], object]
) -> list[Fault]:
    """Return the faults that a parser of options finds, each at the option that it names."""
    try:
        parse(as_options(given))
    except OptionError as error:
        misspelt = any("did you mean streamName?" in fault for fault in error.faults)
        faults = [fault for fault in error.faults if not (misspelt and fault.endswith("is required"))]
        return [Fault((*path, *_named_in(fault, given)), fault) for fault in faults]
    return []


def _named_in(fault: str, given: Mapping[str, Scalar]) -> tuple[str, ...]:
    """Return the option that a fault is about: the first one given that it names."""
    names = {name.lower(): name for name in given}
    words = (word.lower() for word in re.findall(r"[\w.]+", fault))
    return next(((names[word],) for word in words if word in names), ())


def _decode(job: Job, folder: Path) -> list[Fault]:
    decode, faults = job.decode, []
    needs = {"json": True, "avro": True, "protobuf": True}.get(decode.format, False)
    if decode.schema is not None and decode.schema_file is not None:
        faults.append(Fault(("decode", "schema_file"), "is given beside schema: give one of them"))
    if needs and decode.schema is None and decode.schema_file is None:
        what = "schema_file (a descriptor set)" if decode.format == "protobuf" else "schema (or schema_file)"
        faults.append(Fault(("decode",), f"{what} is missing: {decode.format} cannot be decoded without"))
    if not needs:
        faults += [
            Fault(("decode", name), f"has no meaning for {decode.format}")
            for name in ("schema", "schema_file")
            if getattr(decode, name) is not None
        ]
    if decode.format == "protobuf":
        if decode.message is None:
            faults.append(Fault(("decode",), "message is missing: which one of the descriptor set it is"))
        if decode.schema is not None:
            faults.append(
                Fault(("decode", "schema"), "is not taken for protobuf: give a descriptor set in schema_file")
            )
    elif decode.message is not None:
        faults.append(Fault(("decode", "message"), f"has no meaning for {decode.format}"))
    return faults + _schema(job, folder)


def _schema(job: Job, folder: Path) -> list[Fault]:
    decode, faults = job.decode, []
    schema, where = decode.schema, ("decode", "schema")
    if decode.schema_file is not None:
        where = ("decode", "schema_file")
        missing = _missing_file(folder, decode.schema_file)
        faults += [Fault(where, missing)] if missing else []
        schema = None if missing or decode.format != "json" else (folder / decode.schema_file).read_text("utf-8")
    if decode.format == "json" and schema is not None:
        faults += [Fault(where, what) for what in ddl_faults(schema)]
        if job.transform is None:
            taken = sorted(set(field_names(schema)) & (set(SPARK_TYPES) - {"data", "explicit_hash_key"}))
            faults += [
                Fault(where, f"has a field {name}, which is a column of the source too: name it anew in a transform")
                for name in taken
            ]
    return faults


def _no_dead_letters(job: Job) -> list[Fault]:
    if job.decode.format == "bytes":
        return []
    why = f"not every record is {job.decode.format}: give it a path, a stream or discard = true"
    return [Fault((), f"dead_letters is missing: {why}")]


def _dead_letters(job: Job) -> list[Fault]:
    dead = job.dead_letters
    if dead is None:
        return []
    given = [name for name, value in (("path", dead.path), ("stream", dead.stream)) if value is not None]
    given += ["discard"] if dead.discard else []
    if not given:
        return [Fault(("dead_letters",), "give it a path, a stream or discard = true")]
    faults = [Fault(("dead_letters", name), f"is given beside {given[0]}: give one of them") for name in given[1:]]
    if dead.stream is not None:
        faults += _option_faults(dead.stream, ("dead_letters", "stream"), parse_sink_options)
    return faults


def _deduplicate(job: Job, fields: list[str] | None) -> list[Fault]:
    if job.deduplicate is None:
        return []
    faults = []
    for number, key in enumerate(job.deduplicate.keys):
        what = _unknown_column(key, fields)
        if what:
            faults.append(Fault(("deduplicate", "keys", number), what))
    what = _unknown_column(job.deduplicate.time, fields)
    return faults + ([Fault(("deduplicate", "time"), what)] if what else [])


def _value_fields(job: Job) -> list[str] | None:
    """Return the fields of ``value`` where the file names them; an empty list where it has none, and None where they
    are not known here.
    """
    if job.decode.format in ("text", "bytes"):
        return []
    if job.decode.format == "json" and job.decode.schema is not None and not ddl_faults(job.decode.schema):
        return field_names(job.decode.schema)
    return None


def _unknown_column(name: str, fields: list[str] | None) -> str:
    parent, _, field = name.partition(".")
    columns = [*SPARK_TYPES, "value"]
    if parent not in columns:
        hints = (nearest(name, [f"value.{one}" for one in fields or ()]), nearest(parent, columns))
        near = next((hint for hint in hints if "did you mean" in hint), "")
        return f"there is no column {name} before the transform{near}"
    if parent == "value" and field and fields is not None and field.split(".")[0] not in fields:
        return f"value has no field {field}{nearest(field, fields)}"
    return ""


def _transform(job: Job, folder: Path) -> list[Fault]:
    transform = job.transform
    if transform is None:
        return []
    given = [name for name in ("sql", "sql_file", "function") if getattr(transform, name) is not None]
    if not given:
        return [Fault(("transform",), "give it sql, sql_file or a function")]
    faults = [Fault(("transform", name), f"is given beside {given[0]}: give one of them") for name in given[1:]]
    if transform.sql_file is not None:
        missing = _missing_file(folder, transform.sql_file)
        faults += [Fault(("transform", "sql_file"), missing)] if missing else []
    return faults + _function(transform.function, ("transform", "function"), folder)


def _function(name: str | None, path: KeyPath, folder: Path) -> list[Fault]:
    if name is None:
        return []
    try:
        load_function(name, folder)
    except OptionError as error:
        return [Fault(path, str(error))]
    return []


def _sink(sink: Sink, folder: Path) -> list[Fault]:
    if (sink.format is None) == (sink.function is None):
        return [Fault((), "give a sink either a format or a function")]
    faults = _function(sink.function, ("function",), folder)
    faults += _format(sink)
    of_files = sink.format in FOLDER_FORMATS
    if of_files and sink.path is None and sink.table is None:
        faults.append(Fault((), f"path is missing: where the {sink.format} files go"))
    if sink.path is not None and sink.table is not None:
        faults.append(Fault(("table",), "is given beside path: give one of them"))
    faults += _table(sink)
    unused = {
        "path": sink.path is not None and (sink.function is not None or sink.format in ("console", "shardway")),
        "table": sink.table is not None and (sink.function is not None or sink.format in ("console", "shardway")),
        "partition_by": bool(sink.partition_by)
        and (sink.function is not None or sink.format in ("console", "shardway")),
        "key": sink.key is not None and not of_files,
        "mode": sink.mode != "append" and (sink.format is None or sink.format in ("console", "shardway")),
        "options": bool(sink.options) and sink.function is not None,
    }
    faults += [Fault((name,), f"has no meaning for {sink.label}") for name, wrong in unused.items() if wrong]
    if of_files and sink.table is None and sink.mode != "append":
        faults.append(Fault(("mode",), "has no meaning for a folder: each batch adds to it, once"))
    if of_files and sink.table is not None and sink.key is not None:
        faults.append(Fault(("key",), "has no meaning for a table"))
    if sink.format == "shardway":
        faults += _option_faults(sink.options, ("options",), parse_sink_options)
    return faults


def _format(sink: Sink) -> list[Fault]:
    """Return the fault of a format whose name nearly is that of one that is there."""
    if sink.format is None or sink.format in KNOWN_FORMATS or "." in sink.format:
        return []
    near = difflib.get_close_matches(sink.format.lower(), KNOWN_FORMATS, n=1, cutoff=_MISSPELT)
    return [Fault(("format",), f"Spark has no format {sink.format}: did you mean {near[0]}?")] if near else []


def _partitions(job: Job, sink: Sink) -> list[Fault]:
    """Return the columns to partition by that rows do not have, where the file says which columns they have."""
    fields = _value_fields(job)
    if job.transform is not None or sink.sql is not None or fields is None:
        return []
    value = ["value"] if job.decode.format in ("text", "bytes") else fields
    columns = {name.lower(): name for name in (*value, *KEPT, *(["hour"] if is_folder(sink) or is_table(sink) else []))}
    return [
        Fault(("partition_by", at), f"there is no column {name}{nearest(name, columns.values())}")
        for at, name in enumerate(sink.partition_by)
        if name.lower() not in columns
    ]


def _table(sink: Sink) -> list[Fault]:
    """Return what is wrong with a table of Delta or Iceberg that is to have each batch once."""
    if not is_table(sink):
        return []
    faults = [
        Fault(("options", name), "is set by the sink itself: it is what makes a batch known again")
        for name in reserved_options(sink)
    ]
    if sink.format == "iceberg" and sink.table is None:
        what = 'a table of a catalog, which stands under [spark] as "spark.sql.catalog.NAME"'
        faults.append(Fault(("path",) if sink.path is not None else (), f"table is missing: {what}"))
    if sink.format == "delta" and sink.table is None and sink.path is None:
        faults.append(Fault((), "path or table is missing: where the Delta table is"))
    return faults


def place_faults(job: Job, same: Callable[[str], str] = identity) -> list[Fault]:
    """Return the faults of places that collide: two writers of one folder would take each other's files away; a table
    takes one write of a batch.

    ``same``: the function that returns what all spellings of a path have in common.
    """
    taken = {same(job.checkpoint): "the Spark checkpoint directory"}
    faults = []
    sinks = list(enumerate(job.sinks))
    places: list[tuple[KeyPath, str]] = [(("sinks", at, "path"), same(sink.path)) for at, sink in sinks if sink.path]
    places += [(("sinks", at, "table"), _table_name(sink.table)) for at, sink in sinks if sink.table and is_table(sink)]
    if job.dead_letters is not None and job.dead_letters.path is not None:
        places.append((("dead_letters", "path"), same(job.dead_letters.path)))
    for path, place in places:
        before = next((one for one in taken if collide(place, one)), None)
        if before is not None:
            how = "is the same as" if before == place else "overlaps with the partitions of"
            faults.append(Fault(path, f"{how} {taken[before]}: each needs a place of its own"))
        taken.setdefault(place, Fault(path, "").place)
    return faults


def _table_name(table: str) -> str:
    return table.replace("`", "").replace(" ", "")


def _missing_file(folder: Path, name: str) -> str:
    file = folder / name
    return "" if file.is_file() else f"there is no file {name} in the folder of the job file"
