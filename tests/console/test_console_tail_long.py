"""Five minutes of a live tail at 10,000 records a second in three tabs of a real browser; memory stays bounded."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import boto3
import pytest

from shardway.local import LocalKinesis
from shardway.tasks import logged, thread
from tests.console.browsing import CHROMIUM, Watched

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.xdist_group("console-browser"),
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium (scripts/chromium install)"),
]
TAIL_S = 300
SHARDS, RECORDS_PER_S, AT_ONCE = 10, 10_000, 500
GROWS_MIB_MAX = 20
"""Of the server."""
HEAP_MIB_MAX = 100
"""Of a tab: rows that left the table are gone."""
ROWS_MAX = 300
COMMAND = [sys.executable, "-c", "import sys; from shardway.cli import main; sys.exit(main())"]


def put(local: Any, stop: threading.Event, sent: list[int]) -> None:
    """Half of the records."""
    client = boto3.client("kinesis", endpoint_url=local.endpoint_url, region_name=local.region)
    began_s, number = time.monotonic(), 0
    while not stop.is_set():
        records = [
            {"Data": b'{"n": %d, "text": "%s"}' % (number + one, b"x" * 80), "PartitionKey": str(number + one)}
            for one in range(AT_ONCE)
        ]
        client.put_records(StreamName="orders", Records=records)
        number += AT_ONCE
        sent[0] += AT_ONCE
        stop.wait(max(0.0, began_s + 2 * number / RECORDS_PER_S - time.monotonic()))
    client.close()


def rss_mib(pid: int) -> float:
    """What the process has in memory."""
    text = Path(f"/proc/{pid}/status").read_text()
    return int(text.partition("VmRSS:")[2].split()[0]) / 1024


def seen(page: Page) -> int:
    """How many records the tab has heard of."""
    return int(page.locator("#tail-told").inner_text().partition(" seen")[0].replace(",", "") or 0)


def test_three_tabs_follow_for_five_minutes_and_nothing_grows(browser: Browser, tmp_path: Path) -> None:
    with LocalKinesis.spawn(streams={"orders": SHARDS}) as local:
        words = ["console", "--port", "0", "--audit", str(tmp_path / "audit"), "-o", "json"]
        environment = {**os.environ, **local.environment()}
        with subprocess.Popen([*COMMAND, *words], stdout=subprocess.PIPE, env=environment) as process:
            assert process.stdout is not None
            try:
                _follow(browser, local, json.loads(process.stdout.readline()), process.pid)
            finally:
                process.terminate()


def _follow(browser: Browser, local: Any, said: dict[str, str], pid: int) -> None:
    stop, sent = threading.Event(), [0]
    watched = Watched(browser.new_context(), said["url"])
    watched.page.goto(said["launch_url"])
    watched.page.wait_for_url(said["url"] + "/")
    pages = [watched.page, watched.page.context.new_page(), watched.page.context.new_page()]
    writers = [thread(lambda: put(local, stop, sent), "puts", logged("a writer failed")) for _ in range(2)]
    for page, where in zip(pages, ("", "?where=.n+%3E+5", "?where=text+contains+%22zzz%22"), strict=True):
        page.goto(f"{said['url']}/streams/orders/tail{where}")
        page.locator("#tail-told", has_text="seen").wait_for()
    try:
        watched.page.wait_for_timeout(10_000)
        before_mib, begun = rss_mib(pid), [seen(page) for page in pages]
        grown = []
        for _ in range(TAIL_S // 10):
            watched.page.wait_for_timeout(10_000)
            grown.append(rss_mib(pid) - before_mib)
            for page in pages[:2]:
                assert page.locator("#tail-rows tr").count() <= ROWS_MAX
                assert page.evaluate("performance.memory.usedJSHeapSize") < HEAP_MIB_MAX * 1024 * 1024
        print(f"sent {sent[0]}, grown by {max(grown):.1f} MiB from {before_mib:.0f}")
        assert max(grown) <= GROWS_MIB_MAX
        for page, at in zip(pages, begun, strict=True):
            assert seen(page) > at + sent[0] // 2  # it follows to the end, whatever is not shown
        told = pages[0].locator("#tail-told").inner_text()
        assert "came too fast to be shown" in told
        assert pages[2].locator("#tail-rows tr").count() == 0  # what no filter chose is not sent
        assert watched.wrong == []
    finally:
        stop.set()
        for one in writers:
            one.join(30)
        watched.page.context.close()
