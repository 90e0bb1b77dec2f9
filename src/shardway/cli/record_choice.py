"""The options with which commands choose records of a stream and read them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from shardway.cli.report_output import Shape, begin_of
from shardway.errors import OptionError
from shardway.inspect.moments import HOW, moment_s
from shardway.model import IteratorAt

if TYPE_CHECKING:
    from collections.abc import Callable

    from shardway.inspect import Inspector, Reading, SeenRecord
    from shardway.inspect.records.registries import Registries
    from shardway.model import Position


def position_option(default: str) -> Any:
    """Return the option that says where a reading begins."""
    how = f"Where to begin: {HOW}, the last two with /INDEX inside of an aggregate."
    return typer.Option("--starting-position", help=how, metavar="POSITION", show_default=default)


Until = Annotated[str | None, typer.Option(help="Leave out what arrived later: a time, or a span ago.", metavar="TIME")]
Shards = Annotated[
    list[str] | None, typer.Option("--shard", help="Only this shard; may be given again.", metavar="SHARD")
]
Key = Annotated[
    str | None, typer.Option(help="Only records with this partition key, out of its shards.", metavar="KEY")
]
Where = Annotated[
    str | None, typer.Option(help='Only records that it holds for: .amount >= 10 and key == "a".', metavar="FILTER")
]
FanOut = Annotated[
    str | None,
    typer.Option(
        "--fan-out",
        help="Have records pushed by this registered consumer, which no other program is using, in place of polling.",
        metavar="CONSUMER",
    ),
]
GlueRegistry = Annotated[
    bool, typer.Option("--glue-registry", help="Fetch the schemas that records name from AWS Glue, and decode by them.")
]
SchemaRegistry = Annotated[
    str | None,
    typer.Option(
        "--schema-registry",
        help="Fetch them from this registry, which speaks Confluent's protocol. SHARDWAY_SCHEMA_REGISTRY_AUTH is its "
        "USER:PASSWORD.",
        metavar="URL",
    ),
]
Limit = Annotated[int | None, typer.Option("--limit", "-n", help="Stop after so many records.", min=1, metavar="N")]
Decode = Annotated[bool, typer.Option("--decode", help="In lines of JSON: also what is inside, and why.")]
Output = Annotated[
    Shape, typer.Option("--output", "-o", help="table; or jsonl: a line that shardway put --format records takes back.")
]


class ReadStart(NamedTuple):
    """Where reading begins."""

    starting_position: str | None
    since: str | None
    default: str

    def place(self, now_s: float) -> tuple[IteratorAt, Position | None]:
        """Return the place, and the last user record that is left out there. Raises OptionError."""
        from shardway.inspect import Goal

        if self.since is None:
            return Goal(self.starting_position or self.default).begin(now_s)
        if self.starting_position is not None:
            raise OptionError("--since and --starting-position both say where to begin: give one of them")
        begin_s = begin_of(self.since, now_s)
        assert begin_s is not None
        return IteratorAt.at_timestamp(begin_s), None


class ReadMethod(NamedTuple):
    """How records are read, and what they are decoded by."""

    fan_out: str | None = None
    glue_registry: bool = False
    schema_registry: str | None = None

    def registries(self, inspector: Inspector) -> Registries | None:
        """Return the registries to ask; None where none is to be asked. Raises OptionError."""
        from shardway.inspect.records.registries import Registries

        if not self.glue_registry and self.schema_registry is None:
            return None
        return Registries(inspector.wire, glue=self.glue_registry, url=self.schema_registry)


class RecordChoice:
    """Which records a command shows: all of its options that choose."""

    def __init__(
        self,
        begin: ReadStart,
        until: str | None,
        shards: list[str] | None,
        key: str | None,
        where: str | None,
        how: ReadMethod,
    ) -> None:
        from shardway.inspect.filters import parse

        self.begin, self.until, self.how = begin, until, how
        self.shards, self.key = tuple(shards or ()), key
        self.test: Callable[[SeenRecord], bool] | None = None if where is None else parse(where)
        begin.place(time.time())  # a text that is no place is refused before any call is made
        if until is not None:
            moment_s(until, 0.0)

    def reading(self, now_s: float, *, follow: bool = False) -> Reading:
        """Return what is to be read."""
        from shardway.inspect import Reading

        at, behind = self.begin.place(now_s)
        return Reading(
            starting_position=at,
            behind=behind,
            shards=self.shards,
            partition_key=self.key,
            until_s=None if self.until is None else moment_s(self.until, now_s),
            follow=follow and self.until is None,
            fan_out=self.how.fan_out,
            is_patient=follow,
        )
