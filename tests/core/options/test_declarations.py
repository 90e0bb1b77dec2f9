"""Each option says by its type hint what it takes, and each value that it does not take is one clear fault."""

from __future__ import annotations

import importlib
import math
import pkgutil
from types import NoneType
from typing import Any, get_type_hints

import numpy as np
import pytest

import shardway
from shardway.core.options.base import Options
from shardway.core.options.hints import alternatives, metas
from shardway.errors import OptionError

HOMES = ("aws", "console", "core", "kclpy", "local", "options", "policies", "runtime", "telemetry")
REQUIRED: dict[str, dict[str, Any]] = {
    "ConsoleSettings": {"token": 32 * "t", "audit": "audit"},
    "DaemonOptions": {"target": "module:name"},
    "DeadLettersToFile": {"path": "letters"},
    "DeadLettersToStream": {"stream": "letters"},
    "Deduplicate": {"key": str},
    "Every": {"seconds": 1.0},
}
"""Options without which a group cannot be."""
BY_RULES = (
    "retry_base_s must not be above retry_cap_s",
    "read_capacity_units and write_capacity_units are given together, or not at all",
    "buffer_bytes_max must hold at least one record of record_bytes_max, and 256 bytes",
)
"""Faults between options, beside that of the one."""


def every_group() -> list[type[Options]]:
    for module in pkgutil.walk_packages(shardway.__path__, "shardway."):
        if module.name.removeprefix("shardway.").startswith(HOMES) and "shim" not in module.name:
            importlib.import_module(module.name)
    found, waiting = [], list(Options.__subclasses__())
    while waiting:
        kind = waiting.pop()
        waiting += kind.__subclasses__()
        if kind.__module__.startswith("shardway."):
            found.append(kind)
    return sorted(found, key=lambda kind: kind.__name__)


EACH = [
    (kind, name, hint)
    for kind in every_group()
    for name, hint in get_type_hints(kind, include_extras=True).items()
    if name in kind.__struct_fields__
]
IDS = [f"{kind.__name__}.{name}" for kind, name, _ in EACH]


class Stranger:
    """A value of no type that an option could have."""


def hostile_to(hint: Any) -> list[object]:
    """Return values that look as if an option of this type could take them."""
    kinds = list(alternatives(hint))
    found: list[object] = [Stranger(), Stranger]
    if {int, float} & set(kinds):
        found += [True, "4", math.nan, math.inf, -math.inf, 10**400, -(10**400), np.int64(4), 4j, b"4", [4]]
    if str in kinds:
        found += [b"text", ["text"], 4, np.array(["text"])]
    if bool in kinds:
        found += [1, "true", np.True_, []]
    if NoneType not in kinds:
        found.append(None)
    return found


def faults_of(kind: type[Options], name: str, value: object) -> list[str]:
    try:
        kind(**{**REQUIRED.get(kind.__name__, {}), name: value})
    except OptionError as error:
        return [fault for fault in error.faults if fault.split()[0] == name and fault not in BY_RULES]
    return []


def test_there_are_groups() -> None:
    assert {"ProducerOptions", "LeaseOptions", "ConnectionOptions", "SessionOptions", "PollingOptions"} <= {
        kind.__name__ for kind, _, _ in EACH
    }


@pytest.mark.parametrize(("kind", "name", "hint"), EACH, ids=IDS)
def test_a_hostile_value_is_one_fault_of_its_option(kind: type[Options], name: str, hint: Any) -> None:
    if any(one in alternatives(hint) for one in (object, Any)):
        return
    may_be_endless = (kind.__name__, name) == ("ProducerOptions", "record_ttl_s")
    for value in hostile_to(hint):
        if (value is Stranger and name in ("key", "split", "on_pending")) or (may_be_endless and value == math.inf):
            continue  # A class is a function that makes its instances.
        assert len(faults_of(kind, name, value)) == 1, repr(value)[:40]


@pytest.mark.parametrize(("kind", "name", "hint"), EACH, ids=IDS)
def test_a_number_has_a_bound_below(kind: type[Options], name: str, hint: Any) -> None:
    if {int, float} & set(alternatives(hint)):
        assert [one for one in metas(hint) if one.gt is not None or one.ge is not None], "say whether it may be 0"


@pytest.mark.parametrize(("kind", "name", "hint"), EACH, ids=IDS)
def test_a_hint_says_nothing_that_is_not_checked(kind: type[Options], name: str, hint: Any) -> None:
    for one in metas(hint):
        others = (one.lt, one.multiple_of, one.pattern, one.min_length, one.max_length, one.tz)
        assert others == (None,) * len(others)
