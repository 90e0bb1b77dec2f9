"""Symptoms: each is seen in a snapshot that has it, and in no snapshot of a sound application."""

from __future__ import annotations

import datetime as dt
from typing import Any

import msgspec
import pytest

from scripts import reference_doctor
from shardway.core.hashkeys import even_ranges
from shardway.inspect import (
    ApplicationView,
    ConsumerView,
    HeatReport,
    LagReport,
    LeaseView,
    Look,
    Missing,
    ShardHeat,
    ShardLag,
    Snapshot,
    State,
    StreamReport,
    StreamView,
    TableView,
    examine,
)
from shardway.inspect.doctor.symptoms import SYMPTOMS
from tests.docs.doc_pages import DOCS

NOW = dt.datetime(2026, 11, 23, 12, tzinfo=dt.UTC)
SHARDS = [f"shardId-{number:012d}" for number in range(3)]
replace = msgspec.structs.replace


def lease(number: int = 0, **more: Any) -> LeaseView:
    first, last = even_ranges(3)[number]
    values: dict[str, Any] = {
        "key": SHARDS[number], "shard_id": SHARDS[number], "stream": None, "owner": "w1", "next_owner": None,
        "counter": 7, "checkpoint": "123", "sub_sequence_number": 0, "checkpoint_at": NOW, "pending_checkpoint": None,
        "switches": 0, "ended": False, "parents": (), "children": (), "first_hash_key": str(first),
        "last_hash_key": str(last), "read_until": None,
    }  # fmt: skip
    return LeaseView(**{**values, **more})


def shard_lag(number: int = 0, **more: Any) -> ShardLag:
    values: dict[str, Any] = {
        "lease": SHARDS[number], "shard_id": SHARDS[number], "owner": "w1", "state": State.OK, "why": "at the tip",
        "checkpoint": "123", "sub_sequence_number": 0, "behind_s": 0.0, "exact": True, "slope": None, "left_s": None,
        "loses_in_s": None, "may_have_lost": False,
    }  # fmt: skip
    return ShardLag(**{**values, **more})


VIEW = StreamView(
    name="orders", arn="arn:aws:kinesis:eu-west-1:123456789012:stream/orders", status="ACTIVE", mode="PROVISIONED",
    created_at=NOW - dt.timedelta(days=30), retention_hours=24, open_shards=3, consumers=0, encryption="NONE",
    key_id=None, shard_metrics=(), max_record_kib=None, distribution=None, warm_throughput_mib_s=None, channels=None,
    queues=None,
)  # fmt: skip
STREAM = StreamReport(name="orders", stream=VIEW, shards=[], holes=[], consumers=[], missing=[], calls={})
TABLE = TableView(name="billing", status="ACTIVE", billing="on demand", indexes={"LeaseOwnerToLeaseKeyIndex": "ACTIVE"})
APPLICATION = ApplicationView(
    name="billing", store="dynamodb", kinds=["KCL 3.5 or later"], streams=[], leases=[lease(n) for n in range(3)],
    workers=[], unreadable={}, other_rows=[], client_version="CLIENT_VERSION_3X", table_migration=None, tables=[TABLE],
)  # fmt: skip
LAG = LagReport(
    application="billing", stream="orders", taken_at=NOW, window_s=30.0, state=State.OK, behind_s=0.0, loses_in_s=None,
    shards=[shard_lag(n) for n in range(3)], without_lease=[], missing=[], calls={},
)  # fmt: skip
SOUND = Snapshot(taken_at=NOW, stream=STREAM, application=APPLICATION, lag=LAG)


def heat(**more: Any) -> ShardHeat:
    values: dict[str, Any] = {
        "shard_id": SHARDS[0], "span_s": 60.0, "complete": True, "covered": 1.0, "records": 60_000,
        "user_records": 60_000, "payload_bytes": 6_000_000, "records_per_s": 1000.0, "bytes_per_s": 100_000.0,
        "utilization": 1.0, "share": 0.9, "hot": True, "hot_keys": [], "split_at": None, "split_share": None,
        "advice": None,
    }  # fmt: skip
    return ShardHeat(**{**values, **more})


def of_heat(*shards: ShardHeat) -> Snapshot:
    return replace(SOUND, heat=HeatReport(stream="orders", since=NOW, shards=list(shards), missing=[], calls={}))


def of_application(**more: Any) -> Snapshot:
    return replace(SOUND, application=replace(APPLICATION, **more))


def of_leases(**more: Any) -> Snapshot:
    return of_application(leases=[lease(0, **more), lease(1), lease(2)])


def of_lag(shards: list[ShardLag] | None = None, **more: Any) -> Snapshot:
    return replace(SOUND, lag=replace(LAG, shards=shards or LAG.shards, **more))


def of_stream(**more: Any) -> Snapshot:
    return replace(SOUND, stream=replace(STREAM, **more))


def in_state(state: State) -> Snapshot:
    return of_lag([shard_lag(state=state, why=f"it is {state.value}", behind_s=90.0), shard_lag(1), shard_lag(2)])


IN_STATE = {state: in_state(state) for state in State}

ILL: list[tuple[str, Snapshot, str]] = [
    (
        "SHW-D001",
        of_application(tables=[replace(TABLE, billing="provisioned", read_units=1, write_units=0)]),
        "billing",
    ),
    ("SHW-D002", IN_STATE[State.STALLED], SHARDS[0]),
    ("SHW-D003", of_leases(owner=None), SHARDS[0]),
    ("SHW-D003", of_lag(without_lease=["shardId-000000000009"]), "no lease for this open shard"),
    ("SHW-D004", of_stream(holes=[("0", "7")]), "0 to 7"),
    ("SHW-D004", of_application(leases=[lease(0), lease(2)]), "no unfinished lease"),
    ("SHW-D005", IN_STATE[State.FALLING_BEHIND], SHARDS[0]),
    (
        "SHW-D048",
        of_leases(checkpoint="LATEST", read_until=NOW + dt.timedelta(hours=3)),
        f"{SHARDS[0]}: it begins at 2026-11-23T15:00:00Z, which is 3 h ahead",
    ),
    ("SHW-D047", IN_STATE[State.FAR_BEHIND], "1 m 30 s behind; it is far behind"),
    ("SHW-D009", of_heat(heat(), heat(shard_id=SHARDS[1], hot=False)), "takes 100% of its limit, 90% of all load"),
    (
        "SHW-D009",
        of_heat(heat(complete=False, covered=0.37, span_s=22.2)),
        f"{SHARDS[0]} takes 100% of its limit, 90% of all load (bound: the first 37%, 22 s)",
    ),
    ("SHW-D006", of_lag([shard_lag(may_have_lost=True)]), "behind the horizon"),
    (
        "SHW-D012",
        of_stream(consumers=[ConsumerView(name="fan", arn="a", status="CREATING", created_at=NOW)]),
        "CREATING",
    ),
    (
        "SHW-D013",
        of_application(tables=[replace(TABLE, indexes={"LeaseOwnerToLeaseKeyIndex": "CREATING"})]),
        "CREATING",
    ),
    ("SHW-D014", of_application(client_version="CLIENT_VERSION_UPGRADE_FROM_2X"), "UPGRADE_FROM_2X"),
    ("SHW-D015", of_leases(checkpoint_at=NOW - dt.timedelta(days=31)), "before the stream was made"),
    ("SHW-D015", IN_STATE[State.GONE], "it is gone"),
    ("SHW-D017", of_leases(switches=2), "2 changes"),
    ("SHW-D018", IN_STATE[State.STOPPED], "w1: 1 lease"),
    ("SHW-D021", replace(SOUND, clock_off_s=-90.0), "1 m 30 s"),
    ("SHW-D028", of_lag(behind_s=7 * 3600.0), "7 h old; the retention is 1 d"),
    ("SHW-D030", replace(SOUND, missing=[Missing(what="x", action="kinesis:ListShards", message="no")]), "ListShards"),
    ("SHW-D031", of_application(unreadable={"k": "its counter is text"}), "its counter"),
]


def test_a_sound_application_has_no_symptom() -> None:
    report = examine(SOUND)
    assert (report.findings, report.looked_for, report.not_looked_for) == ([], [*SYMPTOMS], [])


@pytest.mark.parametrize(("symptom", "snapshot", "evidence"), ILL, ids=[one[0] for one in ILL])
def test_each_symptom_is_seen_alone_with_its_evidence(symptom: str, snapshot: Snapshot, evidence: str) -> None:
    # What is written down and read elsewhere says the same.
    snapshot = msgspec.json.decode(msgspec.json.encode(snapshot), type=Snapshot)
    (found,) = examine(snapshot).findings
    assert found.id == symptom
    assert evidence in " ".join(found.evidence)
    assert found.do
    assert found.verify


@pytest.mark.parametrize("state", [State.OK, State.ENDED, State.UNKNOWN, State.CATCHING_UP, State.STEADY])
def test_other_states_are_no_symptom(state: State) -> None:
    assert examine(IN_STATE[state]).findings == []


def seen(*looks: dict[str, Any]) -> Snapshot:
    """Looks at one lease, three seconds apart."""
    values = {"owner": "w1", "sequence_number": 1, "behind_s": 90.0}
    made = [Look(at_s=3.0 * n, **{"counter": n, **values, **one}) for n, one in enumerate(looks)]
    return replace(SOUND, looks={SHARDS[0]: made})


@pytest.mark.parametrize(
    ("snapshot", "symptoms"),
    [
        (SOUND, []),
        (IN_STATE[State.UNKNOWN], ["SHW-D002", "SHW-D005"]),
        (IN_STATE[State.FAR_BEHIND], ["SHW-D002", "SHW-D005"]),
        (IN_STATE[State.STEADY], []),
        (of_lag([shard_lag(state=State.UNKNOWN, behind_s=90.0, unsettled_s=0.0)]), ["SHW-D005"]),
        (of_lag([shard_lag(state=State.UNKNOWN, behind_s=None)]), []),
        (seen({}), ["SHW-D018", "SHW-D032", "SHW-D041"]),
        (seen({"silent_s": 1.0}), ["SHW-D032", "SHW-D041"]),
        (seen({"ended": True, "owner": None}), []),
        (seen({}, {}), ["SHW-D032"]),
        (seen({}, {}, {}), []),
        (seen({"counter": 1}, {"counter": 1}, {"counter": 1}), ["SHW-D018"]),
        (seen(*[{"counter": 1}] * 8), []),
        (seen({"next_owner": "w2"}, {"next_owner": "w2"}, {"next_owner": "w2"}), ["SHW-D035"]),
        (seen(*[{"pending": "5"}] * 3), ["SHW-D036"]),
        (seen(*[{"pending": "5"}] * 8), []),
    ],
)
def test_what_the_looks_were_too_short_for_is_named(snapshot: Snapshot, symptoms: list[str]) -> None:
    report = examine(snapshot)
    assert [one.id for one in report.not_looked_for] == symptoms
    assert all(one.why for one in report.not_looked_for)
    assert report.looked_for == [one for one in SYMPTOMS if one not in symptoms]
    assert not {one.id for one in report.findings} & {*symptoms}


def test_the_worst_comes_first() -> None:
    both = replace(IN_STATE[State.STOPPED], missing=[Missing(what="x", action="kinesis:ListShards", message="no")])
    assert [one.severity for one in examine(both).findings] == ["critical", "info"]


def test_the_page_of_symptoms_is_made_of_the_table() -> None:
    page = (DOCS / "reference" / "symptoms.md").read_text(encoding="utf-8")
    assert reference_doctor.renewed(page) == page, "run python -m scripts.reference_doctor with the page"
    guide = (DOCS / "guides" / "inspect.md").read_text(encoding="utf-8")
    assert f"[{len(SYMPTOMS)} known symptoms]" in guide


def test_an_empty_snapshot_is_examined_too() -> None:
    assert examine(Snapshot(taken_at=NOW)).findings == []
