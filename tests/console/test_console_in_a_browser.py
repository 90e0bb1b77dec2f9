"""The console in a real browser: each page under its policy, by keyboard, in light and dark, and on a phone."""

from __future__ import annotations

import gzip
import json
import os
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import boto3
import pytest

from shardway import Credentials
from shardway.console.settings import ConsoleSettings
from shardway.core.ledger.letter import Letter
from shardway.model import Position
from shardway.wiring import ConnectionOptions
from tests.cli.tables_kit import SHARDS, lease, make_table
from tests.console.asking import TOKEN, VIEWER_TOKEN
from tests.console.browsing import CHROMIUM, ROOT, Holding, Served, Watched, tab
from tests.console.picture_world import busy_world
from tests.inspect.job_places import committed, offset, planned, text_of

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Callable, Iterator

    from playwright.sync_api import Browser, Page

    from shardway.local import LocalKinesis

TOO_WIDE = (
    "[...document.querySelectorAll('.scroll')].map((one) => [one.ariaLabel, one.scrollWidth - one.clientWidth])"
    ".filter(([, over]) => over > 0)"
)
"""The tables that a reader would have to scroll sideways, and by how many pixels."""
pytestmark = [
    pytest.mark.xdist_group("console-browser"),
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium (scripts/chromium install)"),
]
PICTURE_BYTES_MAX = 150_000
PICTURES = ROOT / "docs" / "guides" / "console"
WARM_S, LOOKED_S = 80.0, 150
PICTURED = {
    "overview": "/",
    "stream": "/streams/orders?heat=60s",
    "records": "/streams/orders/records?col=arrived&col=.id&col=.customer.tier&col=.amount&col=data",
    "application": "/applications/fraud-check?stream=orders",
    "doctor": "/doctor",
}
"""The pages that are pictured, by the names of the pictures. The lag and its verdicts take some minutes of looks."""
SCRIPT = "<script>window.hacked = 1</script><img src=x onerror='window.hacked=1'>"
PAGES = [
    "/", "/?q=ord", "/streams/orders", "/streams/orders?heat=5m&all=1", "/streams/orders/records?from=trim-horizon",
    "/streams/orders/records?from=trim-horizon&where=.amount+%3E+1", "/streams/orders/records?where=(",
    "/streams/orders/records?from=trim-horizon&col=arrived&col=.note&col=.id&col=data", "/streams/orders/put",
    "/streams/orders/tail",
    "/applications/billing?stream=orders", "/applications/billing/seek",
    "/doctor", "/doctor?app=billing&stream=orders", "/cost?app=billing&stream=orders",
    "/jobs", "/job?place=0&name=orders-to-lake", "/job?place=7&name=none",
    "/letters", "/local?stream=orders", "/audit", "/no/such/page",
    "/streams/no-such-stream",
]  # fmt: skip
FAULTY = {
    "/streams/orders/records?where=(": 400, "/no/such/page": 404, "/streams/no-such-stream": 404,
    "/job?place=7&name=none": 404,
}  # fmt: skip


@pytest.fixture(scope="module")
def letters(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of dead letters."""
    import datetime as dt

    path = tmp_path_factory.mktemp("letters") / "letters.jsonl"
    at = dt.datetime(2026, 11, 1, tzinfo=dt.UTC)
    path.write_bytes(b"".join(_letter(number, at) for number in range(3)) + b"no letter\n")
    return path


def _letter(number: int, at: dt.datetime) -> bytes:
    one = Letter(
        stream="orders", shard_id="shardId-000000000000", position=Position(number + 1, 0), attempts=3,
        error_type="ValueError", error_message=SCRIPT, written_at=at,
        data=f"letter {number}".encode(), partition_key="k",
    )  # fmt: skip
    return one.to_json() + b"\n"


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """Places of Spark jobs: the checkpoint directory of a query that falls behind, and what a run has printed."""
    folder, now_s = tmp_path_factory.mktemp("jobs") / "orders-to-lake", time.time()
    for number in range(40):
        began_s = now_s - 20 * (40 - number)
        planned(folder, number, began_s, text_of(offset(began_s - 5 - 3 * number)))
        committed(folder, number, began_s + 9 + number % 5)
    path = folder.parent / "run.jsonl"
    lines = [
        {"event": "checked", "job": SCRIPT},
        {"event": "error", "message": SCRIPT, "exit_code": 6},
    ]
    path.write_text("".join(json.dumps(one) + "\n" for one in lines))
    return str(folder), str(path)


@pytest.fixture(scope="module")
def world(service: LocalKinesis) -> Iterator[Any]:
    """Streams with records of many kinds, and a table of the KCL."""
    names: dict[str, Any] = {"endpoint_url": service.endpoint_url, "region_name": service.region}
    kinesis, dynamodb = boto3.client("kinesis", **names), boto3.client("dynamodb", **names)
    bodies = [json.dumps({"id": number, "amount": number, "note": SCRIPT}).encode() for number in range(20)] + [
        gzip.compress(b'{"amount": 5}', mtime=0),
        b"\x00\xff" * 20,
        SCRIPT.encode(),
        b"\x1b[31m red",
    ]
    kinesis.put_records(
        StreamName="orders", Records=[{"Data": one, "PartitionKey": f"<b>key-{at}"} for at, one in enumerate(bodies)]
    )
    owners = zip(SHARDS, ["<i>worker-a", None], strict=True)
    make_table(dynamodb, "billing", *(lease(shard_id, "TRIM_HORIZON", 7, owner) for shard_id, owner in owners))
    yield kinesis
    dynamodb.delete_table(TableName="billing")
    kinesis.close()
    dynamodb.close()


@pytest.fixture(scope="module")
def served(
    service: LocalKinesis, world: Any, letters: Path, jobs: tuple[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Served]:
    """A console of that world, which may write."""
    settings = ConsoleSettings(
        token=TOKEN,
        viewer_token=VIEWER_TOKEN,
        audit=str(tmp_path_factory.mktemp("audit") / "audit.jsonl"),
        port=0,
        allow_writes=True,
        local_url=service.endpoint_url,
        streams={"billing": "orders"},
        letters=(str(letters),),
        jobs=jobs,
    )
    credentials = Credentials(access_key_id="local", secret_access_key="local")
    connection = ConnectionOptions(region=service.region, endpoint_url=service.endpoint_url, credentials=credentials)
    with Served(settings, connection) as running:
        yield running


@pytest.fixture
def watched(browser: Browser, served: Served) -> Iterator[Watched]:
    found = tab(browser, served)
    yield found
    found.page.context.close()
    assert [one for one in found.wrong if found.allowed not in one] == []


# --- each page ------------------------------------------------------------------------------------


def test_each_page_keeps_to_its_policy_to_the_rules_of_axe_and_to_the_width_of_a_window(watched: Watched) -> None:
    """Each page is loaded once, and looked at in light and dark, on a phone, and at 200 %."""
    from axe_playwright_python.sync_playwright import Axe

    axe, faults = Axe(), list[Any]()
    for path in PAGES:
        page = watched.go(path, FAULTY.get(path, 200))
        page.emulate_media(color_scheme="light", reduced_motion="reduce")
        if "tail" in path:
            page.locator("#tail-state", has_text="follows").wait_for()
        assert page.evaluate("window.hacked") is None
        assert page.locator("main b, main i, main img").count() == 0, path  # keys, owners and data stay text
        assert page.locator("h1").count() == 1
        faults += [(path, *one) for one in _violations(axe, page, {})]
        page.emulate_media(color_scheme="dark")
        faults += [(path, "dark", *one) for one in _violations(axe, page, {"runOnly": ["color-contrast"]})]
        for width in (320, 390, 640):  # at 200 % a window of 1280 is laid out as one of 640
            page.set_viewport_size({"width": width, "height": 800})
            over = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
            faults += [(path, width, f"{over} pixels are cut")] if over > 0 else []
        page.set_viewport_size({"width": 1280, "height": 800})
    assert faults == []
    assert watched.wrong == []


def _violations(axe: Any, page: Page, options: dict[str, Any]) -> list[tuple[str, list[str]]]:
    found = axe.run(page, options={"resultTypes": ["violations"], **options}).response["violations"]
    return [(one["id"], [node["html"][:150] for node in one["nodes"]][:3]) for one in found]


def test_the_policy_stops_code_that_would_get_into_a_page(browser: Browser, served: Served) -> None:
    found = tab(browser, served)
    page = found.go("/")
    page.evaluate("document.body.insertAdjacentHTML('beforeend', '<img src=x onerror=\"window.hacked=1\">')")
    page.evaluate(
        "{const s = document.createElement('script'); s.textContent = 'window.hacked=2'; document.body.append(s)}"
    )
    outcome = page.evaluate("fetch('http://127.0.0.1:9/').then(() => 'sent', () => 'stopped')")
    assert outcome == "stopped"
    assert page.evaluate("window.hacked") is None
    assert any("Content Security Policy" in one for one in found.wrong)
    page.context.close()


# --- journeys -------------------------------------------------------------------------------------


def test_a_link_of_the_start_signs_in_once(browser: Browser, served: Served) -> None:
    link = served.launch_url()
    first, second = browser.new_context().new_page(), browser.new_context().new_page()
    first.goto(link)
    first.wait_for_url(served.url + "/")
    assert "#" not in first.url
    second.goto(link)
    second.get_by_role("alert").wait_for()
    assert "used already" in second.get_by_role("alert").inner_text()
    second.goto(served.url + "/streams/orders")
    second.get_by_label("Token").fill(TOKEN)
    second.keyboard.press("Enter")
    second.wait_for_url(served.url + "/streams/orders")  # where it wanted to go
    for page in (first, second):
        page.context.close()


def test_from_the_overview_to_a_record_by_keyboard_alone(watched: Watched) -> None:
    page = watched.go("/")
    page.get_by_role("link", name="billing").first.wait_for()  # comes by itself, once it was looked at
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    page.keyboard.press("Enter")
    page.keyboard.press("/")
    page.keyboard.type("orders")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile(r"[?]q=orders"))
    _tab_to(page, "browse records of orders")
    page.keyboard.press("Enter")
    page.wait_for_url("**/streams/orders/records")
    _tab_to(page, "From")
    page.keyboard.press("Control+a")
    page.keyboard.type("trim-horizon")
    page.keyboard.press("Enter")
    page.wait_for_url("**/streams/orders/records?from=trim-horizon**")
    page.keyboard.press("/")
    page.keyboard.type(".amount == 7")
    page.keyboard.press("Enter")
    page.get_by_text("1 shown").wait_for()
    address = page.url
    page.locator("tbody a").first.focus()
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="Record of orders").wait_for()
    assert '"amount": 7' in page.locator("pre").inner_text()
    # The address holds all that was chosen.
    other = page.context.new_page()
    other.goto(address)
    assert other.get_by_label("Filter /").input_value() == ".amount == 7"
    assert other.locator("tbody tr").count() == 1


def _tab_to(page: Page, name: str) -> None:
    """Press Tab until the element of this name has the focus: it can be seen, and is reached."""
    for _ in range(80):
        page.keyboard.press("Tab")
        told = "(document.activeElement.labels?.[0] ?? document.activeElement).textContent"
        if page.evaluate(told).strip() == name:
            assert page.evaluate("document.activeElement.matches(':focus-visible')")
            return
    raise AssertionError(f"{name} is not reached by Tab")


def test_a_verdict_comes_by_itself_and_the_focus_stays(watched: Watched) -> None:
    page = watched.go("/applications/billing?stream=orders")
    page.locator(".verdict", has_text="unowned").first.wait_for()
    assert page.get_by_role("img", name="Lag over the last").or_(page.get_by_text("One look is no trend")).count() == 1
    assert "<i>worker-a" in page.locator("main").inner_text()


def test_a_live_tail_shows_what_comes_as_text(watched: Watched, world: Any) -> None:
    page = watched.go("/streams/clicks/tail?where=.amount+%3E+1")
    page.locator("#tail-told", has_text="seen").wait_for()
    page.wait_for_timeout(1500)  # the reading has its first iterator: what comes from here on is followed
    for amount in (1, 2, 3):
        body = json.dumps({"amount": amount, "note": SCRIPT})
        world.put_record(StreamName="clicks", Data=body.encode(), PartitionKey="<b>")
    page.locator("#tail-rows tr").nth(1).wait_for()
    assert page.locator("#tail-rows tr").count() == 2
    assert SCRIPT.split("=")[0] in page.locator("#tail-rows").inner_text()
    assert page.evaluate("window.hacked") is None
    assert "3 seen, 2 chosen" in page.locator("#tail-told").inner_text()
    page.get_by_role("button", name="Pause").click()
    assert page.locator("#tail-state").inner_text() == "paused"
    page.get_by_role("button", name="Go on").press("Enter")
    page.locator("#tail-state", has_text="follows").wait_for()


def test_a_hidden_page_is_not_looked_at(watched: Watched, served: Served) -> None:
    page = watched.go("/")
    page.locator("#live-state", has_text="refreshed by itself").wait_for()
    console = served.console
    assert console.live_pages >= 1
    page.evaluate(
        "Object.defineProperty(document, 'hidden', {value: true, configurable: true});"
        "document.dispatchEvent(new Event('visibilitychange'))"
    )
    for _ in range(100):
        if console.live_pages == 0:
            break
        page.wait_for_timeout(100)
    assert console.live_pages == 0
    page.evaluate(
        "Object.defineProperty(document, 'hidden', {value: false, configurable: true});"
        "document.dispatchEvent(new Event('visibilitychange'))"
    )
    page.locator("#live-state", has_text="refreshed by itself").wait_for()


def test_the_local_clock_moves_when_it_is_asked_to(watched: Watched, service: LocalKinesis, served: Served) -> None:
    before = service.clock.now()
    page = watched.go("/local")
    page.get_by_label("Move it forward by").fill("2m")
    page.keyboard.press("Enter")
    page.get_by_text("It is done.").wait_for()
    assert service.clock.now() >= before + 120
    page.get_by_role("link", name="Go on").click()
    page.wait_for_url("**/local")
    page.get_by_role("link", name="Audit log").click()
    assert "local.clock" in page.locator("tbody").inner_text()


def test_a_shard_is_split_by_hand(watched: Watched, world: Any) -> None:
    world.create_stream(StreamName="by-hand", ShardCount=1)
    page = watched.go("/local?stream=by-hand")
    page.get_by_role("button", name="Split in the middle").click()
    page.get_by_text("It is done.").wait_for()
    page.get_by_role("link", name="Go on").click()
    page.get_by_role("img", name=re.compile("2 open and 1 closed")).wait_for()


def test_dead_letters_are_looked_at_and_replayed(watched: Watched, world: Any) -> None:
    world.create_stream(StreamName="again", ShardCount=1)
    page = watched.go("/letters")
    page.locator("main .links a").first.click()
    assert "3 letters, 1 lines that are no letter" in page.get_by_role("status").first.inner_text()
    page.get_by_role("link", name="ValueError").click()
    assert SCRIPT in page.locator("table").last.inner_text()
    page.get_by_label("Put the 3 records into the stream").fill("again")
    page.get_by_label("Its name again").fill("agai")
    page.get_by_role("button", name="Replay").click()
    assert "twice" in page.get_by_role("alert").inner_text()
    watched.allowed = "status of 400"  # the browser notes the answer in its console, some time later
    page.go_back()
    page.get_by_label("Put the 3 records into the stream").fill("again")
    page.get_by_label("Its name again").fill("again")
    page.get_by_role("button", name="Replay").click()
    page.get_by_text("It is done.").wait_for()
    iterator = world.get_shard_iterator(
        StreamName="again", ShardId="shardId-000000000000", ShardIteratorType="TRIM_HORIZON"
    )["ShardIterator"]
    found = sorted(one["Data"] for one in world.get_records(ShardIterator=iterator)["Records"])
    assert found == [b"letter 0", b"letter 1", b"letter 2"]


def test_from_the_list_of_jobs_to_one_of_them_by_keyboard(watched: Watched, jobs: tuple[str, str]) -> None:
    # The newest batch is one of now: minutes later, nothing tells whether the query still falls behind.
    folder, now_s = Path(jobs[0]), time.time()
    planned(folder, 40, now_s - 10, text_of(offset(now_s - 140)))
    committed(folder, 40, now_s)
    page = watched.go("/")
    _tab_to(page, "Spark jobs")
    page.keyboard.press("Enter")
    page.wait_for_url("**/jobs")
    assert "failed" in page.locator("[data-part=places]").inner_text()
    _tab_to(page, "orders-to-lake")
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="orders-to-lake").wait_for()
    assert page.get_by_role("img", name="Lag over the last").count() == 1
    assert "falling behind" in page.locator("[data-part=state]").inner_text()
    assert page.locator("[data-part=batches] tbody tr").count() == 41
    page.locator("#live-state", has_text="refreshed by itself").wait_for()


def _hide(page: Page, hidden: bool) -> None:
    page.evaluate(
        f"Object.defineProperty(document, 'hidden', {{value: {str(hidden).lower()}, configurable: true}});"
        "document.dispatchEvent(new Event('visibilitychange'))"
    )


def _until_left(page: Page, left: Callable[[], bool]) -> None:
    """The server notices a closed connection with its next event."""
    for _ in range(300):
        if left():
            return
        page.wait_for_timeout(100)
    raise AssertionError("it goes on")


def test_a_tail_that_sleeps_is_not_read_for_and_says_what_it_has_missed(
    watched: Watched, world: Any, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    page, tails = watched.go("/streams/clicks/tail?from=trim-horizon"), served.console.tails
    world.put_record(StreamName="clicks", Data=b"before", PartitionKey="k")
    page.locator("#tail-rows tr", has_text="before").wait_for()
    _hide(page, True)
    assert page.locator("#tail-state").inner_text() == "sleeps"
    monkeypatch.setattr("shardway.console.looks.tailing.LEFT_S", 0.5)
    _until_left(page, lambda: tails.readings == 0)
    _hide(page, False)
    page.locator("#tail-rows tr", has_text="What came while nothing was followed is not shown here").wait_for()
    page.get_by_role("link", name="Browse from").click()
    page.wait_for_url("**/streams/clicks/records?from=20**")
    assert "before" in page.locator("tbody").inner_text()


def test_a_tail_that_is_frozen_goes_on_with_what_is_newest(watched: Watched, world: Any) -> None:
    page = watched.go("/streams/clicks/tail?where=text+startswith+%22frozen%22&from=trim-horizon")
    page.locator("#tail-told", has_text="seen").wait_for()
    session = page.context.new_cdp_session(page)
    session.send("Page.setWebLifecycleState", {"state": "frozen"})
    for _ in range(4):
        records = [{"Data": b"frozen %d" % number, "PartitionKey": "k"} for number in range(499)]
        world.put_records(StreamName="clicks", Records=records)
    world.put_record(StreamName="clicks", Data=b"frozen last", PartitionKey="k")
    session.send("Page.setWebLifecycleState", {"state": "active"})
    page.locator("#tail-rows tr", has_text="frozen last").wait_for()
    assert page.locator("#tail-rows tr").count() <= 300
    assert "came too fast to be shown" in page.locator("#tail-told").inner_text()


def test_behind_a_proxy_that_holds_events_back_pages_are_fetched_and_a_tail_goes_on_in_steps(
    browser: Browser, service: LocalKinesis, world: Any, tmp_path: Path
) -> None:
    credentials = Credentials(access_key_id="local", secret_access_key="local")
    connection = ConnectionOptions(region=service.region, endpoint_url=service.endpoint_url, credentials=credentials)
    with Holding() as proxy:
        settings = ConsoleSettings(
            token=TOKEN, audit=str(tmp_path / "audit.jsonl"), port=0, host_names=(f"127.0.0.1:{proxy.port}",)
        )
        with Served(settings, connection) as served:
            proxy.to = served.serving.settings.port
            found = tab(browser, served)
            page = found.page
            page.clock.install()
            found.go("/")
            page.clock.fast_forward(21_000)
            page.locator("#live-state", has_text="events do not come through").wait_for()
            with page.expect_request(lambda one: one.url == found.url + "/"):
                page.clock.fast_forward(10_000)
            found.go("/streams/clicks/tail?from=trim-horizon")
            page.clock.fast_forward(9_000)
            page.locator("#tail-state", has_text="in steps: a proxy holds events back").wait_for()
            world.put_record(StreamName="clicks", Data=b"through the proxy", PartitionKey="k")
            page.locator("#tail-rows tr", has_text="through the proxy").wait_for()
            assert found.wrong == []
            page.context.close()


def test_signing_out_ends_what_the_page_follows(watched: Watched) -> None:
    page = watched.go("/audit")
    page.get_by_role("button", name="Sign out").press("Enter")
    page.wait_for_url("**/sign-in")
    assert page.get_by_label("Token").evaluate("one => one === document.activeElement")


# --- what a reader takes along ----------------------------------------------------------------------


def test_a_phone_shows_how_far_behind_without_scrolling_sideways(watched: Watched) -> None:
    page = watched.go("/")
    page.locator("[data-part=applications] .verdict", has_text="unowned").wait_for()
    for width in (360, 390):
        page.set_viewport_size({"width": width, "height": 844})
        for name in ("Verdict", "Behind", "Loses in"):
            head = page.get_by_role("columnheader", name=name)
            box = head.bounding_box()
            assert box is not None
            assert box["x"] + box["width"] <= width, (name, width)
        header = page.locator("header.top").bounding_box()
        assert header is not None
        assert header["height"] <= 116, width  # four lines of text; it was twice as many
    row = page.locator("[data-part=applications] tbody tr").first.bounding_box()
    assert row is not None
    assert row["height"] <= 60  # two lines: the application and its stream


def test_the_tables_of_the_first_pages_fit_a_phone(watched: Watched) -> None:
    over = []
    for path, table in (
        ("/", "Streams"),
        ("/streams/orders", "Shards"),
        ("/applications/billing?stream=orders", "Workers"),
    ):
        page = watched.go(path)
        page.get_by_role("group", name=table).locator("tbody tr").first.wait_for()
        if path == "/":
            page.locator("[data-part=applications] .verdict", has_text="unowned").wait_for()
        for width in (320, 360, 390):
            page.set_viewport_size({"width": width, "height": 844})
            over += [(path, width, *one) for one in page.evaluate(TOO_WIDE)]
    assert over == []


def test_an_overview_whose_applications_are_not_seen_yet_fits_a_phone(watched: Watched) -> None:
    page = watched.go("/")
    page.set_viewport_size({"width": 320, "height": 844})
    wide = page.evaluate(
        "(() => { document.querySelectorAll('.tile dd')[2].innerHTML = '0 <span class=quiet>12 not seen yet</span>';"
        "return document.documentElement.scrollWidth; })()"
    )
    assert wide == 320


def test_the_chart_has_now_and_its_names_inside_of_its_box_at_every_width(watched: Watched) -> None:
    page = watched.go("/job?place=0&name=orders-to-lake")
    page.locator("svg.chart").first.wait_for(state="attached")
    for width in (320, 390, 640, 700, 1280, 2000):
        page.set_viewport_size({"width": width, "height": 800})
        outside = page.evaluate(
            "(() => { const box = document.querySelector('.picture').getBoundingClientRect();"
            "return [...document.querySelectorAll('.picture svg.chart text')].filter((one) => one.checkVisibility())"
            ".map((one) => [one.textContent, one.getBoundingClientRect()])"
            ".filter(([_, at]) => at.left < box.left || at.right > box.right).map(([text]) => text); })()"
        )
        shown = [one for one in page.locator("svg.chart").all() if one.is_visible()]
        assert len(shown) == 1, width
        assert outside == [], width
        assert "now" in (shown[0].text_content() or "")


def test_a_checkpoint_is_copied_whole_by_its_button_and_by_selecting_it(
    watched: Watched, world: Any, served: Served
) -> None:
    number = world.put_record(StreamName="clicks", Data=b"copied", PartitionKey="k")["SequenceNumber"]
    watched.page.context.grant_permissions(["clipboard-read", "clipboard-write"], origin=served.url)
    page = watched.go(f"/streams/clicks/records?from=seq:{number}&limit=1&col=position&col=data")
    cell = page.locator("td .digits").first
    assert page.evaluate(
        "(({scrollWidth, clientWidth}) => scrollWidth > clientWidth)(document.querySelector('.digits'))"
    )
    cell.evaluate("(one) => getSelection().selectAllChildren(one)")
    assert page.evaluate("getSelection().toString()") == number
    page.get_by_role("button", name="copy the position").press("Enter")
    page.get_by_text("copied", exact=True).first.wait_for()
    assert page.evaluate("navigator.clipboard.readText()") == number


def test_a_record_unfolds_in_its_row_and_is_copied(watched: Watched, world: Any, served: Served) -> None:
    number = world.put_record(StreamName="clicks", Data=b'{"unfold": {"me": 1}}', PartitionKey="k")["SequenceNumber"]
    watched.page.context.grant_permissions(["clipboard-read", "clipboard-write"], origin=served.url)
    page = watched.go(f"/streams/clicks/records?from=seq:{number}&limit=1")
    page.locator("td.data summary").press("Enter")
    assert page.locator("td.data pre").inner_text() == '{\n  "unfold": {\n    "me": 1\n  }\n}'
    page.locator("td.data button.copy").click()
    page.locator("td.data button.copy", has_text="copied").wait_for()
    assert json.loads(page.evaluate("navigator.clipboard.readText()")) == {"unfold": {"me": 1}}


def test_a_field_becomes_a_column_by_a_tick(watched: Watched) -> None:
    page = watched.go("/streams/orders/records?from=trim-horizon&where=.amount+%3E+17")
    page.get_by_text("Columns", exact=True).first.click()
    page.get_by_role("checkbox", name=".amount").check()
    page.get_by_role("button", name="Show").click()
    page.wait_for_url(re.compile("col=.amount"))
    assert page.get_by_role("columnheader", name=".amount").count() == 1
    # The two may lie on two shards, and one call's records reach its shards in any order.
    assert sorted(page.locator("td[data-name='.amount']").all_inner_texts()) == ["18", "19"]


def test_times_are_in_utc_or_in_the_zone_of_the_browser_as_its_reader_chooses(browser: Browser, served: Served) -> None:
    found = tab(browser, served, timezone_id="Asia/Kolkata")
    page = found.go("/streams/orders")
    created = page.locator("time").first
    before = created.inner_text()
    assert re.fullmatch(r"[\d-]{10}T[\d:]{8}Z", before)
    page.get_by_role("button", name="Times in UTC").click()
    assert created.inner_text().endswith(" +05:30")
    assert created.get_attribute("title") == before
    found.go("/streams/orders/records?from=trim-horizon&limit=1")
    assert page.locator("tbody time").first.inner_text().endswith(" +05:30")  # it holds for the next page
    page.get_by_role("button", name="Times here").click()
    assert page.locator("tbody time").first.inner_text().endswith("Z")
    assert found.wrong == []
    page.context.close()


def test_without_scripts_records_are_found_and_put(browser: Browser, served: Served, world: Any) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(served.url + "/sign-in?next=%2Fstreams%2Fclicks%2Fput")
    page.get_by_label("Token").fill(TOKEN)
    page.get_by_role("button", name="Sign in").click()
    page.get_by_label("Partition key").fill("by-hand")
    page.get_by_label("Data", exact=True).fill('{"put": "by hand", "emoji": "\N{WRAPPED PRESENT}"}')
    page.get_by_label("The stream's name").fill("clicks")
    page.get_by_role("button", name="Put the record").click()
    assert "It is done." in page.get_by_role("status").inner_text()
    page.get_by_role("link", name="Go on").click()
    row = page.locator("tbody tr", has_text="by hand").first
    assert "by-hand" in row.inner_text()
    row.locator("summary").click()
    assert '"emoji": "\N{WRAPPED PRESENT}"' in row.locator("pre").inner_text()
    assert not page.get_by_role("button", name="Times in UTC").is_visible()
    page.goto(served.url + "/")
    page.get_by_role("link", name="Doctor").first.click()
    assert page.get_by_role("heading", name="Which applications need it").count() == 1
    context.close()


def test_the_doctor_says_which_applications_are_sick(watched: Watched) -> None:
    page = watched.go("/doctor")
    page.get_by_role("link", name="Examine billing").wait_for()
    assert "unowned" in page.locator("[data-part=findings]").inner_text()
    page.get_by_role("link", name="Examine billing").press("Enter")
    page.wait_for_url("**/doctor?app=billing**")
    page.locator(".finding").first.wait_for()


# --- pictures for the guide -----------------------------------------------------------------------


@pytest.mark.skipif(not os.environ.get("PICTURES"), reason="PICTURES=1 makes the pictures of the guide anew")
def test_pictures_of_the_guide(browser: Browser, watched: Watched, tmp_path: Path) -> None:
    page = watched.go("/job?place=0&name=orders-to-lake")
    page.set_viewport_size({"width": 1200, "height": 720})
    page.screenshot(path=PICTURES / "job.png")
    with busy_world(WARM_S) as local:
        settings = ConsoleSettings(token=TOKEN, audit=str(tmp_path / "audit.jsonl"), port=0, allow_writes=True)
        credentials = Credentials(access_key_id="local", secret_access_key="local")
        connection = ConnectionOptions(region=local.region, endpoint_url=local.endpoint_url, credentials=credentials)
        with Served(settings, connection) as served:
            seen = tab(browser, served, viewport={"width": 1200, "height": 720})
            seen.page.wait_for_timeout(LOOKED_S * 1000)  # the overview looks at all applications meanwhile
            for name, path in PICTURED.items():
                seen.go(path).wait_for_timeout(4_000)
                seen.page.screenshot(path=PICTURES / f"{name}.png")
            seen.page.set_viewport_size({"width": 390, "height": 720})
            seen.go("/").wait_for_timeout(2_000)
            seen.page.screenshot(path=PICTURES / "phone.png")
            seen.page.context.close()


def test_pictures_are_small_enough_for_a_page() -> None:
    pictures = list(PICTURES.glob("*.png"))
    assert {one.name for one in pictures if one.stat().st_size > PICTURE_BYTES_MAX} == set()
