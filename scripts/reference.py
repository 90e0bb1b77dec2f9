"""Makes the tables of the producer's reference page from what the code itself says: types, defaults, docstrings.

``python -m scripts.reference docs/reference/producer.md`` writes them anew. In a page each table stands between
``<!-- table: NAME -->`` and ``<!-- end -->``. `TABLES` has the names. The text outside of the tables is hand-written.
"""

from __future__ import annotations

import ast
import inspect
import logging
import re
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import msgspec

from shardway import events
from shardway.core.options.base import Options, hints_of
from shardway.core.options.hints import Also, alternatives, bounds_text, metas, remarks
from shardway.core.signatures import UNITS, field_kinds
from shardway.events.producer_snapshot import ProducerSnapshot, ShardSnapshot
from shardway.options.producer import MIB, ProducerOptions
from shardway.runtime.producer import meter as producer_meter
from shardway.telemetry.log import LINES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence


def options_table() -> str:
    """Return the table of all options of the producer, with each one's type and unit, default, and meaning."""
    about = attribute_docs(ProducerOptions)
    rows = [
        (f"`{name}`", taken_by(ProducerOptions, name), shown(default), about[name])
        for name, default in zip(ProducerOptions.__struct_fields__, ProducerOptions.__struct_defaults__, strict=True)
    ]
    return table(("option", "takes", "default", "what it does"), rows) + rules_list(ProducerOptions)


def events_table(*kinds: Any) -> str:
    """Return the table of all events of these unions of event classes, by default a producer's. A row says what
    happened, which fields the event has, and how it is logged.
    """
    rows = []
    for event in (event for kind in kinds or (events.ProducerEvent,) for event in get_args(kind)):
        about = attribute_docs(event)
        fields = [f"`{name}`" + aside(about.get(name, "")) for name in event.__struct_fields__ if name != "stream"]
        line = LINES[event]
        level = logging.getLevelName(line.level) + (f", one line in {line.every_s:g} s" if line.every_s else "")
        rows.append((f"`{event.__name__}`", plain(event.__doc__ or ""), ", ".join(fields), level))
    return table(("event", "what happened", "fields, beside `stream`", "in the log"), rows)


def metrics_table() -> str:
    """Return the table of the fields and properties of a producer's snapshot, without its period and its shards."""
    return struct_table(ProducerSnapshot, {"period_start_s", "period_end_s", "per_shard"})


def shard_metrics_table() -> str:
    """Return the table of all fields and properties of the part of a snapshot that is about one shard."""
    return struct_table(ShardSnapshot, set())


def kpl_metrics_table() -> str:
    """Return the table of the KPL's metrics and their counterparts, from the docstring of the module that counts."""
    text = inspect.getdoc(producer_meter) or ""
    lines = [line for line in text.split("=\n", 1)[1].splitlines() if line and not line.startswith("=")]
    rows = [tuple(re.split(r"\s{2,}", plain(line, keep_spaces=True), maxsplit=1)) for line in lines]
    return table(("KPL", "here"), rows[1:])


TABLES = {
    "options": options_table,
    "events": events_table,
    "metrics": metrics_table,
    "shard metrics": shard_metrics_table,
    "KPL metrics": kpl_metrics_table,
}


def renewed(page: str) -> str:
    """Return the text of a page with all its tables as the code has them now. Raises KeyError for an unknown name."""
    return renewed_with(page, TABLES)


def renewed_with(page: str, tables: Mapping[str, Callable[[], str]]) -> str:
    """Return the text of a page with its own ``tables`` as the code has them now. Raises KeyError for an unknown
    name.
    """
    return re.sub(
        r"(<!-- table: ([\w -]+?) -->\n).*?(<!-- end -->)",
        lambda found: f"{found[1]}\n{tables[found[2]]()}\n{found[3]}",
        page,
        flags=re.DOTALL,
    )


def attribute_docs(described: type) -> dict[str, str]:
    """Return the docstrings that stand under a class's attributes, each as Markdown in one line, by the attribute's
    name.
    """
    tree = ast.parse(textwrap.dedent(inspect.getsource(described))).body[0]
    assert isinstance(tree, ast.ClassDef)
    found = {}
    for before, here in zip(tree.body, tree.body[1:], strict=False):
        if isinstance(before, ast.AnnAssign) and isinstance(here, ast.Expr) and isinstance(here.value, ast.Constant):
            found[ast.unparse(before.target)] = plain(str(here.value.value))
    return found


def taken_by(described: type, name: str) -> str:
    """Return which values a field takes, beside None: their type, unit and bounds."""
    hint = hints_of(described)[name] if issubclass(described, Options) else None
    unit = next((unit for end, unit in UNITS.items() if name.endswith(end)), "")
    return ", ".join(text for text in (_kind(described, name, hint), unit, bounds_text(hint, shown)) if text)


def _kind(described: type, name: str, hint: Any) -> str:
    title = next((one.title for one in metas(hint) if one.title), None)
    if title is not None:
        return title
    written = field_kinds(described)[name].removesuffix(" | None")
    choices = re.findall(r"'(\w+)'", written) if written.startswith("Literal[") else []
    also = [kind.__name__ for one in remarks(hint) if isinstance(one, Also) for kind in alternatives(one.kinds)]
    return " or ".join(f"`{one}`" for one in [*([f'"{one}"' for one in choices] or [written]), *also])


def rules_list(described: type, names: Iterable[str] | None = None) -> str:
    """Return the list of the rules between options that have one text each. ``names``: those of the options in the
    texts; by default the fields' own.
    """
    fields = set(field_kinds(described) if names is None else names)
    # A name that is also a word of English is one at the start of a text alone.
    marked = [name for name in fields if "_" in name or name.lower() != name]
    pattern = re.compile(rf"^(?:{'|'.join(fields)})\b(?:\.\w+)?|\b(?:{'|'.join(marked)})\b")
    rules = [pattern.sub(r"`\g<0>`", text) for text in _rules(described)]
    return (
        "".join(["\nRules between options, as errors say them:\n\n", *(f"- {one}.\n" for one in rules)])
        if rules
        else ""
    )


def _rules(described: type) -> Iterator[str]:
    """Yield the texts that methods of a class yield, but for those that are made when the program runs."""
    for kind in (one for one in reversed(described.__mro__) if one.__module__.startswith("shardway.")):
        for node in ast.walk(ast.parse(textwrap.dedent(inspect.getsource(kind)))):
            match node:
                case ast.Yield(value=ast.Constant(value=str() as text)):
                    yield text
                case ast.Yield(value=ast.Name(id=name)) if name.isupper():
                    yield getattr(sys.modules[kind.__module__], name)


def struct_table(described: type[msgspec.Struct], left_out: set[str]) -> str:
    """Return the table of a Struct's fields and properties. It leaves out the fields named in ``left_out``."""
    kinds = [kind for kind in reversed(described.__mro__) if kind.__module__.startswith("shardway.")]
    rows = [
        (f"`{name}`", str(kind), attribute_docs(owner).get(name, ""))
        for owner in kinds
        for name, kind in vars(owner).get("__annotations__", {}).items()
        if name not in left_out and not name.startswith("_")
    ]
    for name, member in ((name, member) for owner in kinds for name, member in vars(owner).items()):
        if isinstance(member, property) and member.fget is not None:
            kind = member.fget.__annotations__["return"]
            rows.append((f"`{name}`", kind, plain(inspect.getdoc(member) or "")))
    return table(("field", "type", "what it counts"), rows)


def table(heads: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    """Return a table in Markdown, with these heads and these rows of cells."""
    lines = [heads, ("---",) * len(heads), *(tuple(cell.replace("|", "\\|") for cell in row) for row in rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def renew_files(renew: Callable[[str], str]) -> None:
    """Renew each page that the command line names, where it lies."""
    for argument in sys.argv[1:]:
        page = Path(argument)
        page.write_text(renew(page.read_text(encoding="utf-8")), encoding="utf-8")


def plain(text: str, *, keep_spaces: bool = False) -> str:
    """Return a docstring as Markdown, in one line unless ``keep_spaces`` is set."""
    text = text.replace("``", "`").strip()
    return text if keep_spaces else " ".join(text.split())


def aside(text: str) -> str:
    """Return a docstring as a remark in brackets, which stands behind a name. An empty docstring gives no remark."""
    if not text:
        return ""
    word = text.partition(" ")[0]
    head = word if word in ("True", "False", "None") or word.upper() == word != "A" else word.lower()
    return f" ({head}{text[len(word) :].removesuffix('.')})"


def shown(value: Any) -> str:
    """Return a default as a reader sees it: in MiB where it is a whole number of them, and else with its digits in
    groups of three.
    """
    if isinstance(value, bool):
        return str(value)
    if value >= MIB and value % MIB == 0:
        return f"{value // MIB} MiB"
    return f"{value:,g}" if value < 1_000_000 else f"{value:,}"


if __name__ == "__main__":
    renew_files(renewed)
