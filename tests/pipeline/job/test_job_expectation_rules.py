"""The check of a job's expectations without Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardway.pipeline.job import JobFileError, load_job
from shardway.pipeline.job.file.expectation_rules import EXPECTATIONS_MAX, condition_faults
from tests.pipeline.job.job_files import GOOD

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

FIELDS = ["order_id", "amount", "a.b", "Upper Case"]


@pytest.mark.parametrize(
    "sql",
    [
        "value.amount > 0",
        "VALUE.Amount > 0 AND value . order_id IS NOT NULL",
        "value.`a.b` <> 'it''s (not' AND value.`upper case` = \"(\"",
        "value.order_id RLIKE r'^\\(?order-' -- (a remark",
        "/* count(*) */ value.order_id <> 'count(x)'",
        "array_max(value.items) > 0 OR aggregate(a, 0, (x, y) -> x + y) > 0",
        "value.order_id <> '' AND other.value.customer = 1",
        "`count`(1) = 1",
    ],
)
def test_nothing_is_said_of_what_may_be_right(sql: str) -> None:
    fields = [*FIELDS, "items"]
    assert condition_faults(sql, fields) == []


@pytest.mark.parametrize(
    ("sql", "what"),
    [
        ("value.amuont > 0", "value has no field amuont: did you mean amount?"),
        ("value.`a b` > 0", "value has no field a b"),
        ("value.order_id = 'open", "has a ' that is not closed"),
        ("value.amount > 0)", "has brackets that do not match"),
        ("  ", "is empty"),
        ("COUNT (*) > 0", "has the aggregate count: an expectation holds for each row by itself"),
    ],
)
def test_what_is_certainly_wrong(sql: str, what: str) -> None:
    (fault,) = condition_faults(sql, FIELDS)
    assert fault.startswith(what)


@given(st.text(alphabet="valueamnt.`'\"()[]{}-/* \n\\>0rR🙂\ud83d", max_size=60))
def test_any_text_is_looked_at(sql: str) -> None:
    assert all(isinstance(fault, str) for fault in condition_faults(sql, FIELDS))


def faults(write_job: Callable[[str], Path], text: str) -> list[str]:
    with pytest.raises(JobFileError) as raised:
        load_job(write_job(text), {})
    return [fault.partition("job.toml:")[2] for fault in raised.value.faults]


def test_faults_have_their_line_and_field(write_job: Callable[[str], Path]) -> None:
    begins = len(GOOD.splitlines()) + 1
    rules = """\
[[expect]]
name = "positive"
sql = "value.amount > 0"
action = "dead_letter"
[[expect]]
name = "positive"
sql = "value.amont > 0"
[[expect]]
name = "no blank"
sql = ""
[[expect]]
sql = 5
actoin = "drop"
"""
    assert faults(write_job, GOOD + rules) == [
        f"{begins + 3}: expect[0].action: must be count, drop, dead-letter or stop: did you mean dead-letter?",
        f"{begins + 5}: expect[1].name: positive is the name of expect[0] too: each is counted by a name of its own",
        f"{begins + 6}: expect[1].sql: value has no field amont: did you mean amount?",
        f"{begins + 8}: expect[2].name: must be letters, digits, _, . and -, at most 100",
        f"{begins + 9}: expect[2].sql: is empty",
        f"{begins + 10}: expect[3]: name is missing",
        f"{begins + 11}: expect[3].sql: must be text, not a number",
        f"{begins + 12}: expect[3].actoin: there is no actoin here: did you mean action?",
    ]


def test_dead_letters_need_a_place(write_job: Callable[[str], Path]) -> None:
    text = GOOD.replace('[dead_letters]\npath = "lake/dead"\n', "").replace('"json"', '"bytes"')
    text = "\n".join(line for line in text.splitlines() if not line.startswith("schema"))
    rule = '\n[[expect]]\nname = "a"\nsql = "octet_length(value) > 0"\naction = "{}"\n'
    (fault,) = faults(write_job, text + rule.format("dead-letter"))
    assert fault.endswith(
        "expect[0].action: dead-letter needs [dead_letters]: give it a path, a stream or discard = true"
    )
    assert load_job(write_job(text + rule.format("drop")), {}).job.expect[0].action == "drop"


def test_a_job_with_windows_takes_them(write_job: Callable[[str], Path]) -> None:
    window = '[window]\nlength = "1 minute"\nlate_by = "1 minute"\naggregates = { orders = "count(*)" }\n'
    text = GOOD + window + '[[expect]]\nname = "a"\nsql = "value.amount > 0"\n'
    assert load_job(write_job(text), {}).job.expect[0].name == "a"
    (fault,) = faults(write_job, text.replace("value.amount > 0", "sum(value.amount) > 0"))
    assert "an expectation holds for each row by itself" in fault


def test_the_number_of_expectations_is_bounded(write_job: Callable[[str], Path]) -> None:
    rules = [f'[[expect]]\nname = "a{number}"\nsql = "value.amount > {number}"\n' for number in range(51)]
    assert len(load_job(write_job(GOOD + "".join(rules[:50])), {}).job.expect) == EXPECTATIONS_MAX
    (fault,) = faults(write_job, GOOD + "".join(rules))
    assert fault.endswith("expect: has 51 expectations: a job has at most 50")
