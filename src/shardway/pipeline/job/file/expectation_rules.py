"""Check the expectations of a job without Spark: their names, their actions, and what their SQL certainly cannot be.

Spark reads the SQL when the job starts. This module finds the usual faults before that.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from shardway.pipeline.job.file.faults import Fault, nearest

if TYPE_CHECKING:
    from collections.abc import Collection

    from shardway.pipeline.job.file.lines import KeyPath
    from shardway.pipeline.job.file.model import Job

EXPECTATIONS_MAX = 50
"""The largest number of expectations of a job: each is a bit of a row's number, and a label of a metric."""
NOT_OF_ONE_ROW = "an expectation holds for each row by itself"
NOT_THE_SAME = "is not deterministic: a batch that runs again has to part its rows in the same way"
NO_COLUMN = "names no column, so it is the same for every row; texts stand in quotes ('EUR'), and columns do not"
SUBQUERY = "has a subquery, whose result may differ when a batch runs again: look it up in a transform"
_TOKEN = re.compile(
    r"--[^\n]*|/\*.*?\*/|(?P<text>[rR]?'(?:\\.|[^'\\])*'|[rR]?\"(?:\\.|[^\"\\])*\")|(?P<name>`(?:[^`]|``)*`)"
    r"|(?P<open>'|\"|`|/\*)",
    re.DOTALL,
)
_AGGREGATE = re.compile(
    r"(?<![\w.`])(count|count_if|sum|avg|mean|min|max|first|last|any_value|collect_list|collect_set|stddev|variance"
    r"|approx_count_distinct|max_by|min_by)\s*\(",
    re.IGNORECASE,
)
_OVER_CLAUSE = re.compile(r"\)\s*over\s*(?:\(|\w)", re.IGNORECASE)
_SELECT = re.compile(r"\(\s*select\b", re.IGNORECASE)
_RANDOM = re.compile(
    r"(?<![\w.`])(rand|randn|random|uuid|monotonically_increasing_id|shuffle)\s*\(\s*\d*\s*\)", re.IGNORECASE
)
_FIELD = re.compile(r"(?<![\w.`])value\s*\.\s*([A-Za-z_]\w*|`(?:[^`]|``)+`)", re.IGNORECASE)
_CLOSING_BRACKETS = {")": "(", "]": "[", "}": "{"}


def expectation_faults(job: Job, fields: list[str] | None, unknown: Collection[str] = ()) -> list[Fault]:
    """Return every fault of a job's expectations. ``fields``: those of ``value``, None where they are not known;
    ``unknown``: parts of the job that are not known.
    """
    faults: list[Fault] = []
    if len(job.expect) > EXPECTATIONS_MAX:
        faults.append(Fault(("expect",), f"has {len(job.expect)} expectations: a job has at most {EXPECTATIONS_MAX}"))
    first: dict[str, int] = {}
    for number, one in enumerate(job.expect):
        path: KeyPath = ("expect", number)
        # Names that differ by case only could not be told apart in a dashboard.
        before = first.setdefault(one.name.lower(), number)
        if one.name and before != number:
            what = f"{one.name} is the name of expect[{before}] too: each is counted by a name of its own"
            faults.append(Fault((*path, "name"), what))
        if one.action == "dead-letter" and job.dead_letters is None and "dead_letters" not in unknown:
            what = "dead-letter needs [dead_letters]: give it a path, a stream or discard = true"
            faults.append(Fault((*path, "action"), what))
        faults += [Fault((*path, "sql"), what) for what in condition_faults(one.sql, fields) if one.sql]
    return faults


def condition_faults(sql: str, fields: list[str] | None) -> list[str]:
    """Return what is certainly wrong with a condition; an empty list says little."""
    open_ = next((found["open"] for found in _TOKEN.finditer(sql) if found["open"]), None)
    if open_ is not None:
        return [f"has a {open_} that is not closed"]
    code = _TOKEN.sub(lambda found: found["name"] or (" '' " if found["text"] else " "), sql)
    bare = re.sub(r"`(?:[^`]|``)*`", "n", code)
    if not code.strip():
        return ["is empty"]
    if not _is_balanced(bare):
        return ["has brackets that do not match"]
    faults = []
    if _SELECT.search(bare):
        faults.append(SUBQUERY)
    elif _OVER_CLAUSE.search(bare):
        faults.append(f"has a window function: {NOT_OF_ONE_ROW}")
    elif found := _AGGREGATE.search(bare):
        faults.append(f"has the aggregate {found[1].lower()}: {NOT_OF_ONE_ROW}")
    elif _RANDOM.search(bare):
        faults.append(NOT_THE_SAME)
    if fields and "->" not in bare:  # the parameter of a function in it may have the name `value`, too
        known = {name.lower() for name in fields}
        named = (one.strip("`").replace("``", "`") for one in _FIELD.findall(code))
        missing = dict.fromkeys(name for name in named if name.lower() not in known)
        faults += [f"value has no field {name}{nearest(name, fields)}" for name in missing]
    return faults


def _is_balanced(code: str) -> bool:
    depth: list[str] = []
    for char in code:
        if char in "([{":
            depth.append(char)
        elif char in _CLOSING_BRACKETS and (not depth or depth.pop() != _CLOSING_BRACKETS[char]):
            return False
    return not depth
