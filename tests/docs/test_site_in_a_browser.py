"""The site as a reader sees it: built from the pages, looked at in Chromium on a desk's screen and on a phone's."""

from __future__ import annotations

import functools
import http.server
from typing import TYPE_CHECKING, NamedTuple

import pytest

from scripts import site
from shardway.tasks import logged, thread
from tests.console.browsing import CHROMIUM, FLAGS
from tests.docs.doc_pages import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser, Page

READY = (ROOT / ".venvs" / "site" / ".ready").is_file() and (site.MERMAID_HOME / "mermaid.min.js").is_file()
pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is here: scripts/chromium install brings it"),
    pytest.mark.skipif(not READY, reason="the tools of the site are not here: make site brings them"),
    pytest.mark.xdist_group("site"),
]
DESK, PHONE = (1280, 900), (390, 844)
KINDS = (
    "", "contents/", "guides/which-tool-when/", "guides/console/", "reference/consumer/", "reference/job/",
    "reference/telemetry/", "reference/python/shardway/", "DESIGN/", "BENCHMARKS/", "changelog/",
)  # fmt: skip
"""Pages of each kind: prose, wide tables, long code, pictures, docstrings."""


class Look(NamedTuple):
    """A page in a browser, and what went wrong in it."""

    page: Page
    address: str
    width: int
    faults: list[str]


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where the site is served, built anew."""
    folder = tmp_path_factory.mktemp("site")
    site.build(folder / "site", folder / "stage")
    handler = functools.partial(Quiet, directory=str(folder / "site"))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        serving = thread(server.serve_forever, "site-under-test", logged("the site under test failed"))
        yield f"http://127.0.0.1:{server.server_address[1]}/"
        server.shutdown()
        serving.join(30)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        yield found
        found.close()


@pytest.fixture(params=[DESK, PHONE], ids=["desk", "phone"])
def look(request: pytest.FixtureRequest, browser: Browser, address: str) -> Iterator[Look]:
    width, height = request.param
    context = browser.new_context(viewport={"width": width, "height": height})
    page = context.new_page()
    page.set_default_timeout(60_000)
    faults: list[str] = []
    page.on("request", lambda one: None if one.url.startswith((address, "data:", "blob:")) else faults.append(one.url))
    page.on("console", lambda one: faults.append(one.text) if one.type in {"error", "warning"} else None)
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("response", lambda one: faults.append(f"{one.status} {one.url}") if one.status >= 400 else None)
    yield Look(page, address, width, faults)
    context.close()
    assert faults == [], "the browser asked another host, missed a file, or a script failed"


def test_the_front_page_has_the_first_minute_of_each_kind_of_reader(look: Look) -> None:
    look.page.goto(look.address)
    assert look.page.locator("h1").inner_text().startswith("Shardway")
    heads = [head.removesuffix("¶").strip() for head in look.page.locator("article h2").all_inner_texts()]
    assert heads == ["You have Spark", "You write a service", "You test a program", "You run a stream in production"]


@pytest.mark.timeout(600)
def test_no_page_is_wider_than_the_screen(look: Look) -> None:
    """A wide table or block scrolls in itself."""
    wide = []
    for kind in KINDS:
        look.page.goto(look.address + kind)
        width, screen = look.page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
        if width > screen:
            wide.append((kind, width))
    assert wide == []


def test_the_search_finds_a_page_by_a_word(look: Look) -> None:
    look.page.goto(look.address)
    if look.width == PHONE[0]:
        look.page.locator("label.md-header__button[for=__search]").click()
    look.page.locator("input.md-search__input").click()
    look.page.keyboard.type("enhanced fan-out")
    found = look.page.locator(".md-search-result__link").first
    found.wait_for()
    found.click()
    look.page.wait_for_url(lambda url: url.split("?")[0] != look.address)


def test_the_colours_can_be_dark(look: Look) -> None:
    look.page.goto(look.address)
    body = look.page.locator("body")
    before = body.evaluate("one => getComputedStyle(one).backgroundColor")
    look.page.locator("form[data-md-component=palette] label:visible").click()
    look.page.wait_for_function("document.body.dataset.mdColorScheme === 'slate'")
    assert body.evaluate("one => getComputedStyle(one).backgroundColor") != before


@pytest.mark.timeout(600)
def test_diagrams_are_drawn(look: Look) -> None:
    look.page.goto(f"{look.address}DESIGN/")
    drawn = "[...document.querySelectorAll('div.mermaid')].filter(one => one.offsetHeight > 100).length"
    wanted = (ROOT / "docs" / "DESIGN.md").read_text(encoding="utf-8").count("```mermaid")
    look.page.wait_for_function(f"{drawn} === {wanted}", timeout=300_000)


def test_programs_get_the_markdown_of_each_page(look: Look) -> None:
    listed = look.page.request.get(f"{look.address}llms.txt").text()
    assert "guides/consumer.md)" in listed
    assert look.page.request.get(f"{look.address}guides/consumer.md").text().startswith("# ")
