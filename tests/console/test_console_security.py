"""The attack matrix: each request that must not get through, asked of the application as it is served."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from shardway.console.security.answers import POLICY
from shardway.console.security.gate import FAILURES_BURST
from shardway.console.security.sessions import LAUNCH_S, SESSION_S, Sessions
from shardway.console.security.visitors import Role
from shardway.console.settings import ConsoleSettings
from shardway.errors import OptionError
from tests.console.asking import HOST, TOKEN, VIEWER_TOKEN, ask, csrf_of, signed_in, text_of

if TYPE_CHECKING:
    from pathlib import Path

    from tests.console.conftest import MakeGate

ORIGIN = {"origin": f"http://{HOST}"}
BEARER = {"authorization": f"Bearer {TOKEN}"}
PAGES = [
    "/",
    "/jobs",
    "/job?place=0",
    "/letters",
    "/doctor",
    "/cost",
    "/audit",
    "/streams/orders",
    "/streams/orders/records",
    "/applications/a",
    "/live",
]


# --- the host and the page behind a request -------------------------------------------------------


@pytest.mark.parametrize(
    "host",
    ["evil.example", f"evil.example#{HOST}", "127.0.0.1", "127.0.0.1:80", f"{HOST}.evil.example", "", "localhost.:4568",
     "[::ffff:127.0.0.1]:4568", "0.0.0.0:4568", f"user@{HOST}"],
)  # fmt: skip
async def test_a_host_of_another_name_is_refused(make_gate: MakeGate, host: str) -> None:
    for target in ("/", "/sign-in", "/assets/console.js"):
        assert (await ask(make_gate(), "GET", target, host=host, headers=BEARER)).status == 403


@pytest.mark.parametrize("host", [HOST, "localhost:4568", "LOCALHOST:4568", "[::1]:4568"])
async def test_the_names_of_loopback_are_its_own(make_gate: MakeGate, host: str) -> None:
    assert (await ask(make_gate(), "GET", "/audit", host=host, headers=BEARER)).status == 200


async def test_two_hosts_and_no_host_are_refused(make_gate: MakeGate) -> None:
    gate = make_gate()
    assert (await ask(gate, "GET", "/", host=None, headers=BEARER)).status == 403
    twice = [("host", HOST), *BEARER.items()]
    assert (await ask(gate, "GET", "/", headers=twice)).status == 403


@pytest.mark.parametrize(
    "origin",
    ["http://evil.example", "null", f"https://{HOST}", "http://127.0.0.1", "http://localhost:4568", "http://127.0.0.1:9",
     f"http://{HOST}.evil.example", "", f"http://{HOST}/"],
)  # fmt: skip
async def test_a_page_of_another_origin_gets_nothing(make_gate: MakeGate, origin: str) -> None:
    gate = make_gate(allow_writes=True)
    browser = await signed_in(gate)
    csrf = csrf_of((await ask(gate, "GET", "/audit", headers=browser)).text)
    assert csrf
    headers = {**browser, "origin": origin}
    assert (await ask(gate, "GET", "/audit", headers=headers)).status == 403
    answer = await ask(gate, "POST", "/letters/replay", headers=headers, form={"csrf": csrf})
    assert answer.status == 403
    assert (await ask(gate, "POST", "/sign-in", headers={"origin": origin}, form={"token": TOKEN})).status == 403


async def test_a_form_without_an_origin_is_refused(make_gate: MakeGate) -> None:
    gate = make_gate(allow_writes=True)
    browser = await signed_in(gate)
    csrf = csrf_of((await ask(gate, "GET", "/audit", headers=browser)).text)
    del browser["origin"]
    assert (await ask(gate, "POST", "/sign-out", headers=browser, form={"csrf": csrf})).status == 403
    assert (await ask(gate, "POST", "/sign-in", form={"token": TOKEN})).status == 403


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
async def test_what_a_page_of_another_site_loads_is_refused(make_gate: MakeGate, site: str) -> None:
    gate = make_gate()
    for mode in ("no-cors", "cors", "same-origin"):
        headers = {**BEARER, "sec-fetch-site": site, "sec-fetch-mode": mode}
        assert (await ask(gate, "GET", "/audit", headers=headers)).status == 403
    followed = {**BEARER, "sec-fetch-site": site, "sec-fetch-mode": "navigate"}
    assert (await ask(gate, "GET", "/audit", headers=followed)).status == 200


# --- which visitor --------------------------------------------------------------------------------


@pytest.mark.parametrize("page", PAGES)
async def test_no_page_is_shown_without_a_sign_in(make_gate: MakeGate, page: str) -> None:
    gate = make_gate()
    assert (await ask(gate, "GET", page)).status == 401
    browser = await ask(gate, "GET", page, headers={"accept": "text/html"})
    assert (browser.status, browser.text.strip()) == (303, "sign in")
    assert browser.headers["location"].startswith("/sign-in?next=%2F")


@pytest.mark.parametrize(
    "authorization",
    ["Bearer", "Bearer wrong", f"Bearer {TOKEN}x", f"Bearer {TOKEN[:-1]}", f"Basic {TOKEN}", TOKEN, "Bearer \u00e9",
     "token "],
)  # fmt: skip
async def test_a_wrong_token_is_refused(make_gate: MakeGate, authorization: str) -> None:
    gate = make_gate()
    browser = await signed_in(gate)
    answer = await ask(gate, "GET", "/audit", headers={**browser, "authorization": authorization})
    assert answer.status == 401  # also beside a good cookie
    assert TOKEN not in answer.text


async def test_a_token_in_the_address_counts_for_nothing(make_gate: MakeGate) -> None:
    gate = make_gate()
    for name in ("token", "access_token", "launch"):
        assert (await ask(gate, "GET", f"/audit?{name}={TOKEN}")).status == 401


async def test_tokens_cannot_be_tried_for_long(make_gate: MakeGate) -> None:
    gate = make_gate()
    found = [
        (await ask(gate, "POST", "/sign-in", headers=ORIGIN, form={"token": f"try-{number}"})).status
        for number in range(15)
    ]
    assert found[0] == 401
    assert found[-1] == 429
    assert (await ask(gate, "GET", "/audit", headers=BEARER)).status == 200  # the right one goes on to count


@pytest.mark.parametrize("cookie", ["", "x", "../..", "shardway-console-4568=", f"shardway-console-4568={TOKEN}"])
async def test_a_cookie_that_was_not_given_counts_for_nothing(make_gate: MakeGate, cookie: str) -> None:
    assert (await ask(make_gate(), "GET", "/audit", headers={"cookie": cookie})).status == 401


async def test_the_cookie_is_for_this_console_alone(make_gate: MakeGate) -> None:
    answer = await ask(make_gate(base_path="/p"), "POST", "/p/sign-in", headers=ORIGIN, form={"token": TOKEN})
    assert answer.status == 303
    assert answer.headers["location"] == "/p/"
    attributes = answer.headers["set-cookie"].split("; ")[1:]
    assert attributes == ["Path=/p", "HttpOnly", "SameSite=Strict"]


async def test_a_session_ends_where_it_is_ended(make_gate: MakeGate) -> None:
    gate = make_gate()
    browser = await signed_in(gate)
    page = await ask(gate, "GET", "/audit", headers=browser)
    assert (await ask(gate, "POST", "/sign-out", headers=browser, form={"csrf": "wrong"})).status == 403
    ended = await ask(gate, "POST", "/sign-out", headers=browser, form={"csrf": csrf_of(page.text)})
    assert ended.status == 303
    assert "Max-Age=0" in ended.headers["set-cookie"]
    assert (await ask(gate, "GET", "/audit", headers={"cookie": browser["cookie"]})).status == 401


def test_sessions_and_links_end_by_their_time_and_their_number() -> None:
    now = [0.0]
    sessions = Sessions(lambda: now[0])
    cookie, link = sessions.open(Role.WRITER, "a"), sessions.launch_token(Role.VIEWER)
    late = sessions.launch_token(Role.WRITER)
    launch = sessions.launched(link)
    assert launch is not None
    assert (launch.role, launch.name) == (Role.VIEWER, "browser:viewer")
    assert sessions.launched(link) is None  # once
    now[0] = LAUNCH_S + 1
    assert sessions.launched(late) is None
    assert sessions.of(cookie) is not None
    now[0] = SESSION_S + 1
    assert sessions.of(cookie) is None
    cookie, link = sessions.open(Role.WRITER, "a"), sessions.launch_token(Role.WRITER)
    for _ in range(1000):
        sessions.open(Role.WRITER, "b")
        sessions.launch_token(Role.WRITER)
    assert sessions.of(cookie) is None
    assert sessions.launched(link) is None


async def test_a_link_signs_in_once(make_gate: MakeGate) -> None:
    gate = make_gate()
    browser = await signed_in(gate, VIEWER_TOKEN)
    csrf = csrf_of((await ask(gate, "GET", "/audit", headers=browser)).text)
    made = await ask(gate, "POST", "/launch-link", headers=browser, form={"csrf": csrf})
    token = made.text.partition(f"http://{HOST}/launch#")[2].partition("<")[0]
    assert len(token) >= 32
    first = await ask(gate, "POST", "/launch", headers=ORIGIN, form={"token": token})
    assert first.status == 303
    page = await ask(gate, "GET", "/audit", headers={"cookie": first.cookie})
    assert "browser:viewer, read-only" in text_of(page.text)  # no more than the visitor that made the link
    assert (await ask(gate, "POST", "/launch", headers=ORIGIN, form={"token": token})).status == 401


@pytest.mark.parametrize("following", ["//evil.example", "http://evil.example", "/\\evil.example", "/a\r\nX: y", "x"])
async def test_signing_in_leads_to_no_other_site(make_gate: MakeGate, following: str) -> None:
    answer = await ask(make_gate(), "POST", "/sign-in", headers=ORIGIN, form={"token": TOKEN, "next": following})
    assert answer.status == 400
    assert "location" not in answer.headers


async def linked(gate: Any, browser: dict[str, str]) -> dict[str, str]:
    """The headers of another browser, which a link of this one has signed in."""
    csrf = csrf_of((await ask(gate, "GET", "/audit", headers=browser)).text)
    made = await ask(gate, "POST", "/launch-link", headers=browser, form={"csrf": csrf})
    token = made.text.partition(f"http://{HOST}/launch#")[2].partition("<")[0]
    first = await ask(gate, "POST", "/launch", headers=ORIGIN, form={"token": token})
    assert first.status == 303
    return {**browser, "cookie": first.cookie}


async def test_a_session_that_a_link_began_ends_with_the_one_that_made_it(make_gate: MakeGate) -> None:
    gate = make_gate()
    browser = await signed_in(gate)
    other = await linked(gate, browser)
    third = await linked(gate, other)
    bystander = await signed_in(gate)
    pages = [(await ask(gate, "GET", "/audit", headers=one)).status for one in (browser, other, third, bystander)]
    assert pages == [200] * 4
    csrf = csrf_of((await ask(gate, "GET", "/audit", headers=browser)).text)
    made = await ask(gate, "POST", "/launch-link", headers=browser, form={"csrf": csrf})
    unused = made.text.partition(f"http://{HOST}/launch#")[2].partition("<")[0]
    await ask(gate, "POST", "/sign-out", headers=browser, form={"csrf": csrf})
    plain = [{"cookie": one["cookie"]} for one in (browser, other, third, bystander)]
    assert [(await ask(gate, "GET", "/audit", headers=one)).status for one in plain] == [401, 401, 401, 200]
    assert (await ask(gate, "POST", "/launch", headers=ORIGIN, form={"token": unused})).status == 401


def test_a_session_of_a_link_is_no_longer_than_the_one_that_made_it() -> None:
    now = [0.0]
    sessions = Sessions(lambda: now[0])
    cookie = sessions.open(Role.WRITER, "ada")
    now[0] = SESSION_S - 60
    launch = sessions.launched(sessions.launch_token(Role.WRITER, "ada", cookie))
    assert launch is not None
    other = sessions.open(launch.role, launch.name, launch.made_by)
    found = sessions.of(other)
    assert found is not None
    assert found.name == "ada"
    now[0] = SESSION_S + 1
    assert sessions.of(other) is None


async def test_signing_in_and_out_failing_and_links_are_in_the_audit_log(make_gate: MakeGate) -> None:
    gate = make_gate()
    browser = await signed_in(gate)
    await linked(gate, browser)
    csrf = csrf_of((await ask(gate, "GET", "/audit", headers=browser)).text)
    await ask(gate, "POST", "/sign-in", headers=ORIGIN, form={"token": "wrong"}, peer="127.0.0.9")
    await ask(gate, "GET", "/audit", headers={"authorization": "Bearer wrong"}, peer="127.0.0.8")
    await ask(gate, "POST", "/sign-out", headers=browser, form={"csrf": csrf})
    found = [(one.action, one.outcome, one.user, one.peer) for one in reversed(gate.console.audit.newest())]
    assert found == [
        ("session.signed_in", "done", "browser:writer", "127.0.0.1"),
        ("session.link_made", "done", "browser:writer", "127.0.0.1"),
        ("session.signed_in", "done", "browser:writer", "127.0.0.1"),
        ("session.signed_in", "refused", "-", "127.0.0.9"),
        ("session.token", "refused", "-", "127.0.0.8"),
        ("session.signed_out", "done", "browser:writer", "127.0.0.1"),
    ]


async def test_wrong_tokens_fill_no_disk(make_gate: MakeGate) -> None:
    gate = make_gate()
    for authorization in ("Bearer wrong", "Basic YTpi", "x", "Bearer"):
        for _ in range(50):
            await ask(gate, "GET", "/audit", headers={"authorization": authorization})
    assert len(gate.console.audit.newest()) <= FAILURES_BURST + 10


async def test_no_session_begins_while_the_audit_log_cannot_be_written(make_gate: MakeGate, tmp_path: Path) -> None:
    gate = make_gate(audit=str(tmp_path / "folder"))
    (tmp_path / "folder").mkdir()
    answer = await ask(gate, "POST", "/sign-in", headers=ORIGIN, form={"token": TOKEN})
    assert (answer.status, "set-cookie" in answer.headers) == (503, False)


# --- writes ---------------------------------------------------------------------------------------

WRITES = [
    "/letters/replay",
    "/local/clock",
    "/local/faults",
    "/local/faults/clear",
    "/local/reshard",
    "/applications/a/seek",
    "/no/such/page",
]


@pytest.mark.parametrize("target", WRITES)
async def test_a_read_only_console_refuses_each_write(make_gate: MakeGate, target: str) -> None:
    gate = make_gate()
    browser = await signed_in(gate)
    csrf = csrf_of((await ask(gate, "GET", "/audit", headers=browser)).text)
    for headers, form in ((browser, {"csrf": csrf}), (BEARER, {})):
        answer = await ask(gate, "POST", target, headers=headers, form=form)
        assert (answer.status, "read-only" in answer.text) == (403, True)


@pytest.mark.parametrize("target", WRITES)
async def test_a_viewer_writes_nothing(make_gate: MakeGate, target: str) -> None:
    gate = make_gate(allow_writes=True)
    browser = await signed_in(gate, VIEWER_TOKEN)
    csrf = csrf_of((await ask(gate, "GET", "/audit", headers=browser)).text)
    program = {"authorization": f"Bearer {VIEWER_TOKEN}"}
    for headers, form in ((browser, {"csrf": csrf}), (program, {})):
        answer = await ask(gate, "POST", target, headers=headers, form=form)
        assert (answer.status, "is a viewer" in answer.text) == (403, True)


@pytest.mark.parametrize("csrf", [None, "", "wrong", TOKEN])
async def test_a_form_that_is_none_of_the_consoles_is_refused(make_gate: MakeGate, csrf: str | None) -> None:
    gate = make_gate(allow_writes=True)
    browser = await signed_in(gate)
    other = csrf_of((await ask(gate, "GET", "/audit", headers=await signed_in(gate))).text)
    for given in (csrf, other):  # that of another session neither
        form = {} if given is None else {"csrf": given}
        assert (await ask(gate, "POST", "/letters/replay", headers=browser, form=form)).status == 403


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "get"])
async def test_other_methods_are_refused(make_gate: MakeGate, method: str) -> None:
    assert (await ask(make_gate(allow_writes=True), method, "/", headers=BEARER)).status == 405


async def test_a_form_of_another_kind_or_size_is_refused(make_gate: MakeGate) -> None:
    gate = make_gate(allow_writes=True)
    kinds = {"text/plain": 415, "application/json": 415, "multipart/form-data; boundary=x": 415}
    for kind, status in kinds.items():
        headers = {**BEARER, "content-type": kind}
        assert (await ask(gate, "POST", "/letters/replay", headers=headers, body=b"a=b")).status == status
    large = {"a": "x" * 300_000}
    assert (await ask(gate, "POST", "/letters/replay", headers=BEARER, form=large)).status == 413


async def test_nothing_is_written_while_the_audit_log_cannot_be(
    make_gate: MakeGate, tmp_path: Path, service: Any
) -> None:
    gate = make_gate(allow_writes=True, local_url=service.endpoint_url, audit=str(tmp_path))  # a folder
    before = service.clock.now()
    answer = await ask(gate, "POST", "/local/clock", headers=BEARER, form={"span": "400d"})
    assert answer.status == 503
    assert "Nothing was shown and nothing was written" in answer.text
    assert service.clock.now() < before + 3600
    assert (await ask(gate, "GET", "/streams/orders/records", headers=BEARER)).status == 503


async def test_a_write_is_in_the_audit_log_before_and_after(make_gate: MakeGate, tmp_path: Path, service: Any) -> None:
    gate = make_gate(allow_writes=True, local_url=service.endpoint_url)
    form = {"how": "throttle", "operation": "PutRecord", "count": "1"}
    assert (await ask(gate, "POST", "/local/faults", headers=BEARER, form=form)).status == 200
    assert (await ask(gate, "POST", "/local/faults", headers=BEARER, form={"how": "no such"})).status == 502
    assert (await ask(gate, "POST", "/local/faults/clear", headers=BEARER, form={})).status == 200
    lines = [json.loads(line) for line in (tmp_path / "audit.jsonl").read_text().splitlines()]
    assert [(one["action"], one["outcome"]) for one in lines] == [
        ("local.fault", "begun"), ("local.fault", "done"), ("local.fault", "begun"), ("local.fault", "refused"),
        ("local.faults-cleared", "begun"), ("local.faults-cleared", "done"),
    ]  # fmt: skip
    assert {(one["user"], one["role"], one["peer"]) for one in lines} == {("token:writer", "writer", "127.0.0.1")}
    assert lines[0]["id"] == lines[1]["id"]
    assert lines[4]["before"][0]["fault"]["how"] == "throttle"
    assert (tmp_path / "audit.jsonl").stat().st_mode & 0o077 == 0


# --- what answers carry ---------------------------------------------------------------------------


@pytest.mark.parametrize("target", ["/", "/sign-in", "/launch", "/assets/console.css", "/no/such", "/audit", "/live"])
async def test_each_answer_carries_the_policy(make_gate: MakeGate, target: str) -> None:
    gate = make_gate()
    for headers in ({}, {"accept": "text/html"}, BEARER, {"origin": "http://evil.example"}):
        answer = await ask(gate, "GET", target, headers=headers, until=lambda text: len(text) > 0)
        assert answer.headers["content-security-policy"] == POLICY
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "same-origin"
        assert answer.headers["cross-origin-opener-policy"] == "same-origin"
        assert answer.headers["cross-origin-resource-policy"] == "same-origin"
        assert "no-" in answer.headers["cache-control"]
        assert "access-control-allow-origin" not in answer.headers
        assert "server" not in answer.headers
    assert "unsafe" not in POLICY


async def test_no_page_has_inline_code(make_gate: MakeGate, service: Any) -> None:
    import re

    gate = make_gate(local_url=service.endpoint_url)
    for page in [*PAGES[:-1], "/local", "/sign-in", "/launch", "/streams/orders/tail"]:
        text = (await ask(gate, "GET", page, headers=BEARER)).text
        assert not re.search(r"<script(?![^>]*\bsrc=)|<[a-z][^<>]*\s(on\w+|style)=|=.javascript:|<style", text), page
        assert not re.search(r"(src|href|action)=\"(https?:)?//", text), page


async def test_an_asset_is_one_of_those_that_are_named(make_gate: MakeGate) -> None:
    gate = make_gate()
    for name in ("..%2fsettings.py", "../settings.py", "settings.py", "%2e%2e/asgi.py", ""):
        assert (await ask(gate, "GET", f"/assets/{name}")).status in (401, 404)


async def test_the_token_reaches_no_log(make_gate: MakeGate, caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    caplog.set_level(logging.DEBUG)
    gate = make_gate()
    browser = await signed_in(gate)
    await ask(gate, "GET", "/streams/orders/records?where=key+%3D%3D+%22secret-key%22", headers=browser)
    await ask(gate, "GET", f"/audit?token={TOKEN}", headers=BEARER)
    await ask(gate, "POST", "/sign-in", headers=ORIGIN, form={"token": TOKEN[:-1]})
    await ask(gate, "GET", "/no\x1b[31m\nforged", headers=BEARER)
    written = caplog.text + (tmp_path / "audit.jsonl").read_text()
    assert "GET /streams/orders/records 200 browser:writer" in written
    for secret in (TOKEN[:-1], browser["cookie"].partition("=")[2], "secret-key", "\x1b"):
        assert secret not in written


# --- behind a proxy -------------------------------------------------------------------------------

PROXIED: dict[str, Any] = {
    "proxies": ("10.1.0.0/16", "::1"),
    "user_header": "X-User",
    "writers": ("ada",),
    "host_names": ("console.example.org",),
    "allow_writes": True,
    "base_path": "/shardway",
}
NAME = "console.example.org"


async def test_a_user_header_counts_only_from_named_proxies(make_gate: MakeGate) -> None:
    gate = make_gate(**PROXIED)
    named = {"x-user": "ada", "x-forwarded-proto": "https"}
    page = await ask(gate, "GET", "/shardway/audit", headers=named, host=NAME, peer="10.1.2.3")
    assert (page.status, "ada, may write" in text_of(page.text)) == (200, True)
    for peer in ("10.2.0.1", "127.0.0.1", "", "not an address", "::2", "::ffff:10.1.2.3"):
        assert (await ask(gate, "GET", "/shardway/audit", headers=named, host=NAME, peer=peer)).status == 401


@pytest.mark.parametrize("authorization", ["Basic YWRhOnNlY3JldA==", "Bearer eyJhbGciOi.J9.x", f"Bearer {TOKEN}"])
async def test_a_proxy_that_passes_its_own_authorization_on_signs_its_user_in(
    make_gate: MakeGate, authorization: str
) -> None:
    gate = make_gate(**PROXIED)
    named = {"x-user": "eve", "x-forwarded-proto": "https", "authorization": authorization}
    page = await ask(gate, "GET", "/shardway/audit", headers=named, host=NAME, peer="10.1.2.3")
    assert (page.status, "eve, read-only" in text_of(page.text)) == (200, True), "and she has no more rights by it"
    form = {"csrf": csrf_of(page.text)}
    posted = await ask(
        gate, "POST", "/shardway/letters/replay", headers={**named, "origin": f"https://{NAME}"}, form=form,
        host=NAME, peer="10.1.2.3",
    )  # fmt: skip
    assert posted.status == 403
    forged = await ask(
        gate, "POST", "/shardway/letters/replay", headers=named, form={"csrf": "x"}, host=NAME, peer="10.1.2.3"
    )
    assert forged.status == 403


async def test_a_user_that_a_proxy_signs_in_makes_no_link_that_outlives_it(make_gate: MakeGate) -> None:
    gate = make_gate(**PROXIED)
    ada = {"x-user": "ada", "x-forwarded-proto": "https", "origin": f"https://{NAME}"}
    page = await ask(gate, "GET", "/shardway/audit", headers=ada, host=NAME, peer="10.1.2.3")
    assert "Another browser" not in page.text
    answer = await ask(
        gate, "POST", "/shardway/launch-link", headers=ada, form={"csrf": csrf_of(page.text)}, host=NAME,
        peer="10.1.2.3",
    )  # fmt: skip
    assert (answer.status, "launch#" in answer.text) == (403, False)


async def test_browsers_are_told_to_use_https_alone_only_where_that_was_asked_for(make_gate: MakeGate) -> None:
    secure = {"certificate": "c.pem", "key": "k.pem"}
    names = {"host_names": (NAME, "localhost")}

    async def told(host: str, **changed: Any) -> bool:
        answer = await ask(make_gate(**changed), "GET", "/sign-in", host=host)
        assert answer.status == 200
        return "strict-transport-security" in answer.headers

    assert not await told(HOST)
    assert not await told(NAME, **secure, **names)
    assert await told(NAME, **secure, **names, hsts=True)
    assert not await told(HOST, **secure, hsts=True)
    assert not await told("localhost", **secure, **names, hsts=True)


async def test_a_user_that_is_no_writer_looks(make_gate: MakeGate) -> None:
    gate = make_gate(**PROXIED)
    named = {"x-user": "eve", "x-forwarded-proto": "https", "origin": f"https://{NAME}"}
    page = await ask(gate, "GET", "/shardway/audit", headers=named, host=NAME, peer="10.1.2.3")
    assert "eve, read-only" in text_of(page.text)
    form = {"csrf": csrf_of(page.text)}
    answer = await ask(gate, "POST", "/shardway/letters/replay", headers=named, host=NAME, peer="10.1.2.3", form=form)
    assert (answer.status, answer.text) == (403, "eve is a viewer, and may not write\n")


@pytest.mark.parametrize("names", [["ada", "eve"], [""], ["a" * 500], ["a\x07"]])
async def test_a_header_that_names_no_single_user_is_refused(make_gate: MakeGate, names: list[str]) -> None:
    headers = [("x-user", name) for name in names]
    answer = await ask(make_gate(**PROXIED), "GET", "/shardway/audit", headers=headers, host=NAME, peer="10.1.2.3")
    assert answer.status == 400


async def test_a_proxy_that_names_no_user_is_like_any_other(make_gate: MakeGate) -> None:
    gate = make_gate(**PROXIED)
    assert (await ask(gate, "GET", "/shardway/audit", host=NAME, peer="10.1.2.3")).status == 401
    # The form of one user is none of another's.
    ada = {"x-user": "ada", "x-forwarded-proto": "https", "origin": f"https://{NAME}"}
    eves = {**ada, "x-user": "eve"}
    page = await ask(gate, "GET", "/shardway/audit", headers=eves, host=NAME, peer="10.1.2.3")
    form = {"csrf": csrf_of(page.text)}
    answer = await ask(gate, "POST", "/shardway/letters/replay", headers=ada, host=NAME, peer="10.1.2.3", form=form)
    assert answer.status == 403


async def test_behind_a_proxy_the_origin_has_the_scheme_that_it_tells(make_gate: MakeGate) -> None:
    gate = make_gate(**PROXIED)
    for peer, origin, status in (
        ("10.1.2.3", f"https://{NAME}", 200),
        ("10.1.2.3", f"http://{NAME}", 403),
        ("10.9.9.9", f"https://{NAME}", 403),
    ):
        if peer == "10.9.9.9":
            gate = make_gate(**{**PROXIED, "proxies": ("10.1.0.0/16",)})
        headers = {"x-forwarded-proto": "https", "origin": origin, **BEARER}
        assert (await ask(gate, "GET", "/shardway/audit", headers=headers, host=NAME, peer=peer)).status == status


@pytest.mark.parametrize(("peer", "told", "secure"), [
    ("10.1.2.3", "https", True), ("10.1.2.3", "http", False), ("10.9.9.9", "https", False),
])  # fmt: skip
async def test_the_cookie_goes_over_https_alone_where_a_proxy_serves_that(
    make_gate: MakeGate, peer: str, told: str, secure: bool
) -> None:
    headers = {"x-forwarded-proto": told, "origin": f"{'https' if secure else 'http'}://{NAME}"}
    answer = await ask(
        make_gate(**PROXIED), "POST", "/shardway/sign-in", headers=headers, form={"token": TOKEN}, host=NAME, peer=peer
    )
    assert answer.status == 303
    assert ("; Secure" in answer.headers["set-cookie"]) is secure


async def test_below_a_base_path_nothing_is_beside_it(make_gate: MakeGate) -> None:
    gate = make_gate(base_path="/shardway")
    for path in ("/", "/audit", "/shardways/audit", "/assets/console.js"):
        assert (await ask(gate, "GET", path, headers=BEARER)).status == 404
    page = await ask(gate, "GET", "/shardway", headers=BEARER)
    assert page.status == 200
    assert 'href="/shardway/assets/console.css"' in page.text
    followed = await ask(gate, "GET", "/shardway/audit?x=1", headers={"accept": "text/html"})
    assert followed.headers["location"] == "/shardway/sign-in?next=%2Faudit%3Fx%3D1"


# --- settings -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changed", "fault"),
    [
        ({"token": "short"}, "32 characters"),
        ({"viewer_token": TOKEN}, "take another"),
        ({"host": "0.0.0.0", "host_names": ("a.example",)}, "needs TLS"),
        ({"host": "10.0.0.1", "certificate": "c", "key": "k"}, "name the host"),
        ({"certificate": "c"}, "go together"),
        ({"user_header": "X-User"}, "only from proxies"),
        ({"user_header": "X User", "proxies": ("10.0.0.1",)}, "no header"),
        ({"writers": ("ada",)}, "name its header"),
        ({"proxies": ("0.0.0.0/0",)}, "every address"),
        ({"proxies": ("proxy.example",)}, "no address"),
        ({"base_path": "shardway/"}, "begins with /"),
        ({"base_path": '/"><script>'}, "begins with /"),
        ({"masks": ("customer",)}, "write key, or a path"),
        ({"host_names": ("a b",)}, "write NAME"),
        ({"port": 70000}, "port must be from 0 to 65535, not 70000: 0 takes a free one"),
    ],
)
def test_settings_that_are_not_safe_are_refused(settings: ConsoleSettings, changed: dict[str, Any], fault: str) -> None:
    with pytest.raises(OptionError, match=fault):
        msgspec.structs.replace(settings, **changed)
