"""Makes the tables of the consumer's reference page from what the code itself says.

``python -m scripts.reference_consumer docs/reference/consumer.md`` writes them anew. `scripts.reference` has what all
pages share.
"""

from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from scripts.reference import (
    attribute_docs,
    events_table,
    plain,
    renew_files,
    renewed_with,
    rules_list,
    shown,
    struct_table,
    table,
    taken_by,
)

from shardway import events
from shardway.aws.options import ConnectionOptions
from shardway.core.leases.tenure.times import LeaseTimes
from shardway.core.log.pace import PollingOptions
from shardway.core.options.base import Options
from shardway.core.shard.checkpoints.cadence import Every, Prompt, Riding
from shardway.core.shard.duplicates import Deduplicate
from shardway.options import (
    BufferOptions,
    CheckpointOptions,
    ConsumerOptions,
    FanOutOptions,
    HandoffOptions,
    LeaseOptions,
    MetricsOptions,
)
from shardway.policies import (
    AnyOrder,
    ByKey,
    DeadLetters,
    Deliver,
    GiveUp,
    InOrder,
    Redeliver,
    Retry,
    SettlingOptions,
    Skip,
    Stop,
    Warn,
)
from shardway.runtime.consumer.concurrency import OneByOne, Unordered
from shardway.runtime.consumer.lifecycle import AssignedShard, ShardChange
from shardway.runtime.consumer.statistics import ConsumerStatistics, ShardStatistics
from shardway.runtime.shard.listener import Origin

if TYPE_CHECKING:
    from collections.abc import Callable

CONSTANTS = {
    "shardway.core.worker.state": "consumer",
    "shardway.core.worker.held": "consumer",
    "shardway.core.worker.upkeep": "consumer",
    "shardway.runtime.consumer.closing": "consumer",
    "shardway.runtime.consumer.turns": "consumer",
    "shardway.runtime.worker.presence": "membership",
    "shardway.runtime.worker.sight": "leases",
    "shardway.runtime.worker.kcl_watch": "beside the KCL",
    "shardway.runtime.worker.shard_leases": "leases",
    "shardway.runtime.shard.shard_reader": "shards",
    "shardway.runtime.dead_letters.shard_letters": "dead letters",
    "shardway.runtime.dead_letters.reading": "dead letters",
    "shardway.runtime.dead_letters.replay": "dead letters",
    "shardway.runtime.shard.window_reading": "deduplication",
    "shardway.runtime.consumer.sync_consumer": "threads",
    "shardway.runtime.feeds.fan_out": "polling and fan-out",
    "shardway.core.log.pace": "polling",
    "shardway.core.log.buffer": "polling",
    "shardway.core.log.user_records": "polling",
    "shardway.core.log.feed_cursor": "polling",
    "shardway.core.log.silence": "polling",
    "shardway.core.leases.membership": "membership",
    "shardway.core.leases.worker_row": "membership",
    "shardway.core.assignment.views": "leases",
    "shardway.core.assignment.kcl.fleet": "beside the KCL",
    "shardway.core.assignment.kcl.rows": "beside the KCL",
    "shardway.core.assignment.kcl.kcl2": "beside the KCL",
    "shardway.core.shard.drain": "shards",
    "shardway.core.shard.machine": "shards",
    "shardway.core.shard.checkpoints.cadence": "checkpoints",
    "shardway.core.ledger.ledger_events": "events",
    "shardway.core.ledger.letter": "dead letters",
    "shardway.aws.record_source": "fan-out",
    "shardway.aws.event_stream": "fan-out",
    "shardway.core.ledger.policy": "shards",
    "shardway.runtime.worker.holding": "leases",
    "shardway.aws.transport": "connections",
    "shardway.aws.dynamodb.client": "tables",
    "shardway.aws.dynamodb.lease_table": "tables",
    "shardway.stores.postgres": "tables",
    "shardway.stores.sqlite": "tables",
}
"""The subject of a module's constants, by the module's name. The constants are bounds and intervals that no option
changes.
"""


def fields_table(described: type) -> str:
    """Return the table of the fields of a dataclass or Struct, with each one's default, values and meaning, and the
    rules between them. Fields that share one remark share a row.
    """
    about = attribute_docs(described)
    rows, waiting = [], list[tuple[str, str, str]]()
    for name, default in _defaults(described):
        waiting.append((f"`{name}`", default, taken_by(described, name)))
        if name in about:
            names, defaults, taken = zip(*waiting, strict=True)
            rows.append((", ".join(names), ", ".join(defaults), "; ".join(dict.fromkeys(taken)), about[name]))
            waiting = []
    rows += [(name, default, taken, "") for name, default, taken in waiting]
    return table(("option", "default", "takes", "what it does"), rows) + rules_list(described)


def policies_table() -> str:
    """Return the table of all policies: where each may stand, which fields it has, and what it means."""
    places = {
        "`Retry.then`, `stalled`, `unreadable`": (DeadLetters, Skip, Stop),
        "`Retry.then`, `stalled`": (GiveUp,),
        "`stalled`": (Warn, Redeliver),
        "`unreadable`": (Deliver,),
        "`order`": (InOrder, AnyOrder, ByKey),
        "`cadence`": (Riding, Every, Prompt),
        "`run(concurrency=...)`": (OneByOne, Unordered),
    }
    rows = []
    for place, kinds in places.items():
        for kind in kinds:
            about = attribute_docs(kind)
            given = ", ".join(f"{name}={default}" for name, default in _defaults(kind))
            meant = " ".join(f"`{name}` ({taken_by(kind, name)}): {text}" for name, text in about.items())
            rows.append((f"`{kind.__name__}({given})`", place, f"{plain(vars(kind)['__doc__'])} {meant}".strip()))
    return table(("value", "where", "what it does"), rows)


def callbacks_table() -> str:
    """Return the table of the callbacks about a consumer's shards, with the moment at which each is awaited."""
    rows = [(f"`{ShardChange[name].value}`", text) for name, text in _assigned_docs(ShardChange)]
    return table(("callback", "awaited when"), rows)


def origins_table() -> str:
    """Return the table of the ways in which a shard may come to a consumer."""
    rows = [(f"`Origin.{name}`", text) for name, text in _assigned_docs(Origin)]
    return table(("`AssignedShard.origin`", "how the shard came"), rows)


def consumer_events_table() -> str:
    """Return the table of all events of a consumer."""
    return events_table(events.ConsumerEvent, events.WorkerEvent, events.FeedEvent, events.LedgerEvent)


def constants_table() -> str:
    """Return the table of all bounds and intervals that no option changes."""
    rows = []
    for module, subject in CONSTANTS.items():
        path = importlib.import_module(module).__file__
        assert path is not None
        waiting = list[str]()
        body = ast.parse(Path(path).read_text(encoding="utf-8")).body
        for node, following in zip(body, [*body[1:], None], strict=True):
            if not isinstance(node, ast.Assign) or not isinstance(node.targets[0], ast.Name):
                continue
            name = node.targets[0].id
            value = getattr(importlib.import_module(module), name)
            if name.isupper() and isinstance(value, int | float) and name[0] != "_" and name != "VERSION":
                waiting.append(f"`{name}` = {shown(value)}")
                if isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant):
                    rows.append((subject, ", ".join(waiting), plain(str(following.value.value))))
                    waiting = []
    return table(("about", "constant", "what it is"), sorted(rows, key=lambda row: row[0]))


TABLES: dict[str, Callable[[], str]] = {
    "options": lambda: fields_table(ConsumerOptions),
    "leases": lambda: fields_table(LeaseOptions),
    "handoff": lambda: fields_table(HandoffOptions),
    "checkpoints": lambda: fields_table(CheckpointOptions),
    "settling": lambda: fields_table(SettlingOptions),
    "buffer": lambda: fields_table(BufferOptions),
    "metrics": lambda: fields_table(MetricsOptions),
    "retry": lambda: fields_table(Retry),
    "policies": policies_table,
    "polling": lambda: fields_table(PollingOptions),
    "fan-out": lambda: fields_table(FanOutOptions),
    "deduplication": lambda: fields_table(Deduplicate),
    "connection": lambda: fields_table(ConnectionOptions),
    "lease times": lambda: fields_table(LeaseTimes),
    "callbacks": callbacks_table,
    "origins": origins_table,
    "assigned": lambda: fields_table(AssignedShard),
    "statistics": lambda: struct_table(ConsumerStatistics, set()),
    "shard statistics": lambda: struct_table(ShardStatistics, set()),
    "events": consumer_events_table,
    "constants": constants_table,
}


def renewed(page: str) -> str:
    """Return the text of a page with all its tables as the code has them now."""
    return renewed_with(page, TABLES)


def _defaults(described: Any) -> list[tuple[str, str]]:
    if dataclasses.is_dataclass(described):
        return [
            (field.name, _default(field.default, field.default_factory, dataclasses.MISSING))
            for field in dataclasses.fields(described)
        ]
    names, defaults = described.__struct_fields__, described.__struct_defaults__
    padded = [*(msgspec.NODEFAULT for _ in names[len(defaults) :]), *defaults]
    return [
        (name, _default(msgspec.NODEFAULT, default.factory, msgspec.NODEFAULT))
        if type(default).__name__ == "Factory"
        else (name, _default(default, msgspec.NODEFAULT, msgspec.NODEFAULT))
        for name, default in zip(names, padded, strict=True)
        if not name.startswith("_")
    ]


def _default(value: Any, factory: Any, missing: Any) -> str:
    if value is missing:
        if factory is missing:
            return "to be given"
        value = factory()
    if isinstance(value, bool | None) or value == {}:
        return str(value)
    if isinstance(value, int | float):
        return shown(value)
    if isinstance(value, str):
        return f'`"{value}"`'
    if isinstance(value, Options):
        return f"`{type(value).__name__}()`"
    if dataclasses.is_dataclass(value):
        return f"`{type(value).__name__}(...)`" if dataclasses.fields(value) else f"`{type(value).__name__}()`"
    kind = type(value).__name__
    return f"`{kind}.{getattr(value, 'name', None) or getattr(value, 'kind', '')}`".replace(".`", "()`")


def _assigned_docs(described: type) -> list[tuple[str, str]]:
    """Return (name, docstring) for each plain assignment of a class with a docstring, such as an Enum's members."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(described))).body[0]
    assert isinstance(tree, ast.ClassDef)
    return [
        (ast.unparse(before.targets[0]), plain(str(here.value.value)))
        for before, here in zip(tree.body, tree.body[1:], strict=False)
        if isinstance(before, ast.Assign) and isinstance(here, ast.Expr) and isinstance(here.value, ast.Constant)
    ]


if __name__ == "__main__":
    renew_files(renewed)
