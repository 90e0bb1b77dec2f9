"""``shardway app``: tables of the KCL and of Shardway beside a local stream; nothing is written to any of them."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from shardway.aws.calls.retry import RetryPolicy
from shardway.core.leases import Checkpoint, LeaseRow
from shardway.local import LocalKinesis
from shardway.model import Position
from shardway.stores.sqlite import SqliteLeaseTable
from shardway.testing import Fault
from tests.cli.tables_kit import SHARDS, lease, make_table, put

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Run = Callable[..., Any]

FIXTURES = Path(__file__).parents[1] / "fixtures" / "kcl"
pytestmark = pytest.mark.xdist_group("inspected-tables")


@pytest.fixture
def local(service: LocalKinesis, monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalKinesis]:
    """Its DynamoDB and its streams stay between tests."""
    for name, value in service.environment().items():
        monkeypatch.setenv(name, value)
    yield service
    service.faults.clear()


def stream_of(kinesis: Any, name: str, shards: int = 2) -> None:
    kinesis.create_stream(StreamName=name, ShardCount=shards)


def fixture_table(dynamodb: Any, name: str) -> str:
    ((table, content),) = json.loads((FIXTURES / f"{name}.json").read_text())["tables"].items()
    make_table(dynamodb, table, *content["items"])
    return str(table)


def test_ls_knows_lease_tables_by_their_key(run: Run, dynamodb: Any) -> None:
    make_table(dynamodb, "billing", lease(SHARDS[0], "LATEST"))
    make_table(dynamodb, "billing-Workers", key="workerId")
    make_table(dynamodb, "old-kcl")
    make_table(dynamodb, "old-kcl-CoordinatorState", key="key")
    make_table(dynamodb, "customers", key="id")
    done = run("app", "ls")
    assert (done.status, done.stderr) == (0, "")
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["APPLICATION", "billing", "old-kcl"]
    found = {one["name"]: one for one in map(json.loads, run("app", "ls", "-o", "jsonl").stdout.splitlines())}
    assert (found["billing"]["workers_table"], found["old-kcl"]["coordinator_table"]) == (True, True)


@pytest.mark.parametrize("name", ["kcl27-steady", "kcl35-during-handoff"])
def test_describe_shows_a_real_table_of_the_kcl(run: Run, dynamodb: Any, name: str) -> None:
    table = fixture_table(dynamodb, name)
    before = dynamodb.scan(TableName=table)["Items"]
    done = run("app", "describe", table)
    assert (done.status, done.stderr) == (0, "")
    assert ("KCL 2.x" if "27" in name else "KCL 3.5 or later") in done.stdout
    assert ("->" in done.stdout) == ("handoff" in name)
    report = json.loads(run("app", "describe", table, "-o", "json").stdout)
    assert report["application"]["tables"][0]["billing"] == "on demand"
    assert set(report["calls"]) <= {"DescribeTable", "Scan"}
    assert dynamodb.scan(TableName=table)["Items"] == before


def test_a_table_of_another_kind_is_no_lease_table(run: Run, dynamodb: Any) -> None:
    make_table(dynamodb, "customers", {"id": {"S": "\x1b[2Jboo"}}, key="id")
    done = run("app", "describe", "customers")
    assert (done.status, done.stdout) == (1, "")
    assert done.stderr == "shardway: the table customers has the key ['id'], not ['leaseKey']: it is no lease table\n"


def test_a_table_that_is_not_there(run: Run, dynamodb: Any) -> None:
    done = run("app", "describe", "nothing")
    assert (done.status, done.stdout) == (1, "")
    assert "ResourceNotFoundException" in done.stderr


def test_lag_from_each_checkpoint_to_the_next_record(
    run: Run, kinesis: Any, dynamodb: Any, local: LocalKinesis
) -> None:
    stream_of(kinesis, "lagging")
    read = put(kinesis, "lagging", 0)
    tip = put(kinesis, "lagging", 1)
    local.clock.advance(100)
    put(kinesis, "lagging", 0)
    local.clock.advance(500)
    make_table(dynamodb, "lagging-app", lease(SHARDS[0], read), lease(SHARDS[1], tip))
    done = run("app", "lag", "lagging-app", "--stream", "lagging", "-o", "json")
    assert (done.status, done.stderr) == (0, "")
    report = json.loads(done.stdout)
    behind, at_tip = report["shards"]
    assert 495 < behind["behind_s"] < 530
    assert (behind["state"], at_tip["state"], at_tip["behind_s"]) == ("far behind", "ok", 0)
    assert 86400 - 530 < report["loses_in_s"] < 86400 - 495
    assert (at_tip["loses_in_s"], report["state"], report["schema"]) == (None, "far behind", "shardway.lag/1")
    text = run("app", "lag", "lagging-app", "--stream", "lagging").stdout
    assert text.startswith("lagging-app on lagging: far behind, 8 m 2")
    assert "loses data in 23 h 51 m" in text


def test_a_history_gives_the_next_run_its_trend(
    run: Run, kinesis: Any, dynamodb: Any, local: LocalKinesis, tmp_path: Path
) -> None:
    stream_of(kinesis, "trend", 1)
    numbers = [put(kinesis, "trend", 0) for _ in range(3)]
    local.clock.advance(300)
    make_table(dynamodb, "trend-app", lease(SHARDS[0], numbers[0]))
    words = ("app", "lag", "trend-app", "--stream", "trend", "--history", str(tmp_path / "looks"), "-o", "json")
    assert json.loads(run(*words).stdout)["state"] == "far behind"
    local.clock.advance(200)
    dynamodb.put_item(TableName="trend-app", Item=lease(SHARDS[0], numbers[1], counter=2))
    report = json.loads(run(*words).stdout)
    assert (report["state"], report["shards"][0]["slope"] > 0.9) == ("falling behind", True)
    local.clock.advance(100)
    assert json.loads(run(*words).stdout)["state"] == "stopped"  # the counter has not moved for 100 s
    dynamodb.put_item(TableName="trend-app", Item=lease(SHARDS[0], numbers[0], counter=3))
    assert json.loads(run(*words).stdout)["state"] == "rewound"
    local.clock.advance(100)
    assert json.loads(run(*words, "--since", "50s").stdout)["state"] == "far behind"
    assert json.loads(run(*words).stdout)["state"] == "rewound"  # what did not count is kept
    check = ("check", *words[1:-2])
    assert "rewound" in run(*check).stdout
    assert "rewound" not in run(*check, "--since", "50s").stdout
    assert "name the file that has them with --history" in run(*words[:5], "--since", "1m").stderr
    (tmp_path / "looks").write_text("{")
    assert "it holds no looks of this command" in run(*words).stderr


def test_unowned_leases_shards_without_a_lease_and_shards_that_are_gone(run: Run, kinesis: Any, dynamodb: Any) -> None:
    stream_of(kinesis, "holes", 3)
    make_table(
        dynamodb,
        "holes-app",
        lease(SHARDS[0], "TRIM_HORIZON", owner=None),
        lease(SHARDS[1], "SHARD_END"),
        lease("shardId-000000000099", "TRIM_HORIZON"),
    )
    report = json.loads(run("app", "lag", "holes-app", "--stream", "holes", "-o", "json").stdout)
    assert [one["state"] for one in report["shards"]] == ["gone", "unowned", "ended"]
    assert report["without_lease"] == ["shardId-000000000002"]
    assert report["state"] == "gone"


def test_a_checkpoint_behind_the_horizon_may_have_lost_records(
    run: Run, kinesis: Any, dynamodb: Any, local: LocalKinesis
) -> None:
    stream_of(kinesis, "trimmed", 1)
    old = put(kinesis, "trimmed", 0)
    local.clock.advance(30 * 3600)
    put(kinesis, "trimmed", 0)
    make_table(dynamodb, "trimmed-app", lease(SHARDS[0], old))
    done = run("app", "lag", "trimmed-app", "--stream", "trimmed")
    assert "may have lost" in done.stdout


def test_the_stream_must_be_named_where_the_rows_do_not_say_it(run: Run, dynamodb: Any) -> None:
    make_table(dynamodb, "nameless", lease(SHARDS[0], "LATEST"))
    done = run("app", "lag", "nameless")
    assert done.stderr == "shardway: the leases of nameless do not name their stream: name it with --stream\n"
    make_table(dynamodb, "empty")
    assert "shows no leases" in run("app", "lag", "empty").stderr


def test_missing_permissions_are_named_and_the_rest_is_shown(run: Run, dynamodb: Any, local: LocalKinesis) -> None:
    make_table(dynamodb, "guarded", lease(SHARDS[0], "LATEST"))
    local.faults.add(Fault(how="access_denied", operation="DescribeTable", count=1))
    done = run("app", "describe", "guarded")
    assert done.status == 0
    assert "The credentials lack dynamodb:DescribeTable" in done.stderr
    assert SHARDS[0] in done.stdout


def test_export_is_a_document_of_positions(run: Run, dynamodb: Any) -> None:
    make_table(dynamodb, "carried", lease(SHARDS[0], "0004957"), lease(SHARDS[1], "LATEST"))
    document = json.loads(run("app", "export", "carried").stdout)
    assert document["schema"] == "shardway.positions/1"
    assert document["shards"][SHARDS[0]]["sequence_number"] == "0004957"
    assert [one["exact"] for one in document["shards"].values()] == [True, False]
    dynamodb.put_item(TableName="carried", Item={**lease("b", "LATEST"), "leaseCounter": {"S": "odd"}})
    done = run("app", "export", "carried")
    assert (done.status, json.loads(done.stdout)["left_out"].keys()) == (1, {"b"})


def test_an_application_in_a_file_of_sqlite(run: Run, kinesis: Any, tmp_path: Path) -> None:
    stream_of(kinesis, "filed", 1)
    number = put(kinesis, "filed", 0)
    path = tmp_path / "leases.sqlite"

    async def fill() -> None:
        table = SqliteLeaseTable(path).of("filed-app")
        await table.ensure()
        at = Checkpoint.at(Position(int(number), 0))
        await table.create(LeaseRow(key=SHARDS[0], checkpoint=at, owner="w1", counter=4))
        await table.close()

    asyncio.run(fill())
    store = f"sqlite:{path}"
    assert run("app", "ls", "--store", store).stdout.splitlines()[1].split()[:3] == ["filed-app", "sqlite", "1"]
    report = json.loads(run("app", "lag", "filed-app", "--store", store, "--stream", "filed", "-o", "json").stdout)
    assert report["state"] == "ok"
    wrong = run("app", "describe", "other", "--store", store)
    assert "the application 'other' has no leases in" in wrong.stderr
    assert run("app", "ls", "--store", f"sqlite:{tmp_path}/none").stderr.startswith("shardway: there is no file")
    assert not (tmp_path / "none").exists()


def test_check_lag_ends_with_the_status_that_it_shows(
    run: Run, kinesis: Any, dynamodb: Any, local: LocalKinesis
) -> None:
    stream_of(kinesis, "checked", 1)
    first = put(kinesis, "checked", 0)
    last = put(kinesis, "checked", 0)
    make_table(dynamodb, "checked-app", lease(SHARDS[0], last))
    words = ("check", "lag", "checked-app", "--stream", "checked")
    done = run(*words)
    assert (done.status, done.stderr) == (0, "")
    assert done.stdout == "LAG OK - checked-app on checked: ok, 0 s behind | shards=1 behind=0s;300;3600\n"
    dynamodb.put_item(TableName="checked-app", Item=lease(SHARDS[0], first))
    local.clock.advance(600)
    assert (run(*words).status, run(*words, "--critical", "9m").status) == (1, 2)
    local.clock.advance(3600 * 19)
    assert "loses_in=" in run(*words).stdout
    assert run(*words, "--warning", "2d", "--critical", "2d", "--loses-critical", "1h").status == 1
    unknown = run("check", "lag", "no-such-app", "--stream", "checked")
    assert (unknown.status, unknown.stderr) == (3, "")
    assert unknown.stdout.startswith("LAG UNKNOWN - DescribeTable: ResourceNotFoundException")


def test_check_leases(run: Run, dynamodb: Any, local: LocalKinesis) -> None:
    make_table(dynamodb, "held", lease(SHARDS[0], "LATEST"), lease(SHARDS[1], "SHARD_END", owner=None))
    done = run("check", "leases", "held", "--window", "0s")
    assert (done.status, done.stdout) == (
        3,
        "LEASES UNKNOWN - held: 1 lease held by 1 worker; w1: no look has shown whether it renews its leases: look for "
        "longer | held=1 free=0;;0 workers=1\n",
    )
    dynamodb.put_item(TableName="held", Item=lease(SHARDS[0], "LATEST", owner=None))
    local.faults.add(Fault(how="access_denied", operation="DescribeTable", count=1))  # its check takes no settings
    done = run("check", "leases", "held", "-o", "json")
    assert (done.status, json.loads(done.stdout)["remarks"]) == (2, [f"{SHARDS[0]}: no worker has it"])


def test_check_stream(run: Run, kinesis: Any, local: LocalKinesis) -> None:
    stream_of(kinesis, "sound", 2)
    assert run("check", "stream", "sound")[:2] == (
        0,
        "STREAM OK - sound: ACTIVE, 2 open shards | open_shards=2 holes=0;;0\n",
    )
    assert run("check", "stream", "absent").status == 3
    local.faults.add(Fault(how="access_denied", operation="ListShards", count=1))
    done = run("check", "stream", "sound")
    assert (done.status, done.stdout) == (
        3,
        "STREAM UNKNOWN - sound: it is not shown; the credentials lack kinesis:ListShards\n",
    )


def test_doctor_collects_a_snapshot_and_examines_it_elsewhere(
    run: Run, kinesis: Any, dynamodb: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream_of(kinesis, "ill", 2)
    put(kinesis, "ill", 0, b"a secret payload")
    make_table(dynamodb, "ill-app", lease(SHARDS[0], "TRIM_HORIZON", owner=None))
    words = ("ill-app", "--stream", "ill", "--window", "0s")
    collected = run("doctor", "--collect", *words)
    assert (collected.status, collected.stderr) == (0, "")
    assert "secret" not in collected.stdout
    path = tmp_path / "snapshot.json"
    path.write_text(collected.stdout)
    here = run("doctor", *words)
    assert here.status == 1
    assert "SHW-D003 critical: shards that no worker reads" in here.stdout
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")  # nothing is asked any more
    there = run("doctor", "--from", str(path), "-o", "json")
    found = {one["id"]: one for one in json.loads(there.stdout)["findings"]}
    assert found["SHW-D003"]["evidence"] == [
        f"{SHARDS[0]}: no worker has the lease",
        f"{SHARDS[1]}: there is no lease for this open shard",
    ]
    path.write_text("{}")
    assert "it is no snapshot" in run("doctor", "--from", str(path)).stderr


def test_doctor_finds_nothing_where_nothing_is_wrong(run: Run, kinesis: Any, dynamodb: Any) -> None:
    stream_of(kinesis, "well", 1)
    make_table(dynamodb, "well-app", lease(SHARDS[0], put(kinesis, "well", 0)))
    done = run("doctor", "well-app", "--stream", "well", "--window", "0s", "-o", "json")
    clock = {"SHW-D021"}  # the tests before have moved the service's clock
    assert {one["id"] for one in json.loads(done.stdout)["findings"]} <= clock
    assert "name what to look at" in run("doctor").stderr


def test_cost_by_what_a_stream_carries(
    run: Run, kinesis: Any, dynamodb: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream_of(kinesis, "priced", 2)
    make_table(dynamodb, "priced-app", lease(SHARDS[0], put(kinesis, "priced", 0)))
    words = ("priced-app", "--stream", "priced", "--window", "0s")
    done = run("cost", *words)
    assert (done.status, done.stderr) == (0, "")
    assert "by the prices of 2026-11-01 in us-east-1" in done.stdout
    assert "provisioned (now)" in done.stdout
    report = json.loads(run("cost", *words, "-o", "json").stdout)
    assert (report["schema"], report["traffic"]["shards"]) == ("shardway.cost/1", 2)
    path = tmp_path / "snapshot.json"
    path.write_text(run("doctor", "--collect", *words).stdout)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")  # nothing is asked any more
    there = json.loads(run("cost", "--from", str(path), "-o", "json").stdout)
    assert there["modes"][0]["items"][0] == {"what": "shards", "quantity": 2, "unit": "shards", "monthly": 21.9}
    assert "--prices" in run("cost", "--from", str(path), "--prices", str(path)).stderr


ESCAPE = "\x1b[2J\x1b]0;owned\x07"


def make_table_of_escapes(dynamodb: Any, name: str) -> None:
    make_table(
        dynamodb,
        name,
        lease(SHARDS[0], "TRIM_HORIZON", owner=ESCAPE),
        lease(SHARDS[1] + ESCAPE, "TRIM_HORIZON", owner=None),
        {**lease("odd" + ESCAPE, "LATEST"), "checkpoint": {"S": ESCAPE}},
        {"leaseKey": {"S": "other" + ESCAPE}, "entityType": {"S": ESCAPE}},
        {"leaseKey": {"S": "Migration3.0"}, "entityType": {"S": "X"}, "cv": {"S": ESCAPE}},
    )


@pytest.mark.parametrize("shape", ["table", "json", "jsonl", "yaml"])
def test_no_escape_sequence_of_a_row_reaches_a_terminal(run: Run, kinesis: Any, dynamodb: Any, shape: str) -> None:
    stream_of(kinesis, f"escaped-{shape}")
    name = f"escaped-app-{shape}"
    make_table_of_escapes(dynamodb, name)
    of_stream = ("--stream", f"escaped-{shape}")
    commands: list[tuple[str, ...]] = [
        ("app", "describe", name),
        ("app", "lag", name, *of_stream),
        ("doctor", name, *of_stream, "--window", "0s"),
        ("app", "ls"),
    ]
    for words in commands:
        done = run(*words, "-o", shape)
        assert done.stdout
        assert [one for one in (done.stdout + done.stderr).replace("\n", "") if not one.isprintable()] == []


def test_no_escape_sequence_of_a_row_reaches_the_line_of_a_check(run: Run, dynamodb: Any) -> None:
    # Once, and not for each shape: the check waits until a renewal of these leases would have to be seen.
    make_table_of_escapes(dynamodb, "escaped-app-checked")
    checked = run("check", "leases", "escaped-app-checked")
    assert checked.stdout.rstrip("\n").isprintable()


def test_doctor_says_how_it_is_used(run: Run, tmp_path: Path) -> None:
    for more in ("a", "--collect"):
        assert "leave APPLICATION, --stream and --collect out" in run("doctor", "--from", "x", more).stderr
    assert "No such file" in run("doctor", "--from", str(tmp_path / "none")).stderr
    for text in ("[]", "nothing", '{"taken_at": "2026-11-23T12:00:00Z", "stream": 5}', "[" * 100_000):
        (tmp_path / "odd").write_text(text)
        done = run("doctor", "--from", str(tmp_path / "odd"))
        assert (done.status, done.stdout) == (1, "")
        assert "it is no snapshot" in done.stderr


def test_check_leases_that_are_not_shown_is_unknown(run: Run, dynamodb: Any, local: LocalKinesis) -> None:
    make_table(dynamodb, "hidden", lease(SHARDS[0], "LATEST"))
    local.faults.add(Fault(how="access_denied", operation="Scan"))
    done = run("check", "leases", "hidden")
    assert (done.status, done.stdout) == (
        3,
        "LEASES UNKNOWN - hidden: the leases are not shown; the credentials lack dynamodb:Scan\n",
    )
    shown = run("app", "lag", "hidden", "--stream", "orders")
    assert "shows no leases: the credentials lack dynamodb:Scan" in shown.stderr


@pytest.mark.parametrize("operation", ["DescribeStreamSummary", "ListShards", "GetShardIterator", "GetRecords"])
def test_check_lag_says_which_part_of_it_is_not_made(
    run: Run, kinesis: Any, dynamodb: Any, local: LocalKinesis, operation: str
) -> None:
    name = f"part-{operation.lower()}"
    stream_of(kinesis, name, 1)
    make_table(dynamodb, name, lease(SHARDS[0], put(kinesis, name, 0)))
    local.faults.add(Fault(how="access_denied", operation=operation))
    done = run("check", "lag", name, "--stream", name)
    assert f"the credentials lack kinesis:{operation}" in done.stdout
    assert done.status == (0 if operation in ("DescribeStreamSummary", "ListShards") else 3)


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        (Fault(how="access_denied", operation="GetRecords"), "AccessDeniedException"),
        (Fault(how="throttle", operation="GetRecords"), "ProvisionedThroughputExceededException"),
    ],
    ids=["permission", "rate"],
)
def test_a_shard_whose_read_was_refused_says_so(
    run: Run, kinesis: Any, dynamodb: Any, local: LocalKinesis, fault: Fault, code: str
) -> None:
    name = f"refused-{code.lower()}"
    stream_of(kinesis, name, 1)
    make_table(dynamodb, name, lease(SHARDS[0], put(kinesis, name, 0)))
    local.faults.add(fault)
    done = run("app", "lag", name, "--stream", name)
    assert f"the read of the shard was refused ({code})" in done.stdout
    assert f"{name} on {name}: not known yet, of 1 shard it is not known" in done.stdout
    assert "not shown: the records of" in done.stderr


def test_doctor_compares_with_what_earlier_runs_saw(
    run: Run, kinesis: Any, dynamodb: Any, local: LocalKinesis, tmp_path: Path
) -> None:
    stream_of(kinesis, "compared", 1)
    make_table(dynamodb, "compared-app", lease(SHARDS[0], put(kinesis, "compared", 0)))
    words = (
        "compared-app",
        "--stream",
        "compared",
        "--window",
        "0s",
        "--history",
        str(tmp_path / "looks"),
    )
    assert "SHW-D018 critical" not in run("doctor", *words).stdout
    local.clock.advance(30)
    found = run("doctor", "--collect", *words)
    (tmp_path / "snapshot").write_text(found.stdout)
    assert "SHW-D018 critical" in run("doctor", "--from", str(tmp_path / "snapshot")).stdout


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("check", "lag"), "Missing argument 'APPLICATION'"),
        (("check", "lag", "a", "--warning", "soon"), "'soon' is no span of time"),
        (("check", "lag", "a", "--bogus"), "No such option"),
        (("check", "bogus"), "No such command 'bogus'"),
        (("check", "lag", "a", "--region", "no region"), "region"),
        (("check", "lag", "a", "--since", "1h"), "name the file that has them with --history"),
        (("--context", "none", "check", "lag", "a"), "there is no context 'none'"),
        (("check", "stream", "orders"), "cannot connect"),
    ],
)
def test_what_keeps_a_check_from_being_made_is_unknown(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, words: tuple[str, ...], why: str
) -> None:
    """Nagios takes a status of 1 or 2 as one of what is checked."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setattr("shardway.inspect.reads.wire.RETRY", RetryPolicy(attempts_max=1))
    done = run(*words)
    assert (done.status, done.stderr) == (3, "")
    assert " UNKNOWN - " in done.stdout
    assert why in done.stdout
    assert done.stdout.count("\n") == 1


@pytest.mark.parametrize("command", [("ls",), ("lag", "billing"), ("describe", "billing")])
@pytest.mark.parametrize(
    "store",
    [
        "postgresql://ada:hunter2/x@127.0.0.1:1/shop",
        "postgresql://ada:hunter2#x@127.0.0.1:1/shop",
        "postgresql://ada:hunter2 x@127.0.0.1:1/shop",
        "postgresql://ada:hunter2'x@127.0.0.1:1/shop",
        "postgresql://127.0.0.1:1/shop?user=ada&password=hunter2",
        "postgresql:ada:hunter2@127.0.0.1:1/shop",
        "Postgresql://ada:hunter2@127.0.0.1:1/shop",
    ],
)
def test_a_store_that_cannot_be_read_is_one_line_without_its_password(
    run: Run, command: tuple[str, ...], store: str
) -> None:
    done = run("app", *command, "--store", store, "--region", "us-east-1")
    assert done.status != 0
    assert done.stderr.startswith("shardway: ")
    assert "Traceback" not in done.stderr
    assert "hunter2" not in done.stdout + done.stderr
