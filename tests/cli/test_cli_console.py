"""``shardway console`` and ``shardway local --console`` as processes: what they say, serve and refuse."""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import signal
import socket
import ssl
import subprocess
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode, urlsplit

import pytest

from shardway.local import LocalKinesis
from tests.console.asking import text_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    Start = Callable[..., subprocess.Popen[bytes]]
    Run = Callable[..., Any]

TOKEN = "writer-token-of-forty-characters-0123456"
VIEWER_TOKEN = "viewer-token-of-forty-characters-0123456"
WRITE = "/letters/replay"


class Console:
    """A console that runs, asked as a program or a browser asks it."""

    def __init__(self, said: dict[str, Any], ca_file: str | None = None) -> None:
        self.url, self.launch_url = said["url"], said["launch_url"]
        parts = urlsplit(self.url)
        self.port: int = said["port"]
        self.origin = f"{parts.scheme}://{parts.netloc}"
        self._base = parts.path
        self._context = None if ca_file is None else ssl.create_default_context(cafile=ca_file)

    @contextlib.contextmanager
    def open(self, method: str, path: str, form: dict[str, str] | None = None, **headers: str) -> Iterator[Any]:
        """The answer, as soon as its head is there."""
        if self._context is not None:
            connection: Any = http.client.HTTPSConnection("127.0.0.1", self.port, timeout=30, context=self._context)
        else:
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        body = None
        if form is not None:
            body = urlencode(form)
            given["Content-Type"] = "application/x-www-form-urlencoded"
        with contextlib.closing(connection):
            connection.request(method, self._base + path, body, given)
            with connection.getresponse() as answer:
                yield answer

    def ask(self, method: str, path: str, form: dict[str, str] | None = None, **headers: str) -> tuple[int, str]:
        """Status and text."""
        with self.open(method, path, form, **headers) as answer:
            return answer.status, answer.read().decode()

    def sign_in(self, token: str) -> tuple[int, str]:
        """As a browser does; the cookie."""
        with self.open("POST", "/sign-in", {"token": token}, Origin=self.origin) as answer:
            answer.read()
            return answer.status, (answer.headers["set-cookie"] or "").partition(";")[0]


def bearer(token: str = TOKEN) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}", "Accept": "text/html"}


@pytest.fixture
def audit(tmp_path: Path) -> Path:
    return tmp_path / "audit.jsonl"


def a_token(path: Path, token: str = TOKEN, mode: int = 0o600) -> str:
    """A file with a token, which its owner alone may read."""
    path.write_text(token + "\n")
    path.chmod(mode)
    return str(path)


@pytest.fixture
def console(start: Start, audit: Path, local: LocalKinesis) -> Callable[..., tuple[subprocess.Popen[bytes], Console]]:
    """Starts a console of a local Kinesis on a free port."""

    def begin(*options: str) -> tuple[subprocess.Popen[bytes], Console]:
        process = start("console", "--port", "0", "--audit", str(audit), "-o", "json", *options)
        assert process.stdout is not None
        ca_file = options[options.index("--certificate") + 1] if "--certificate" in options else None
        return process, Console(json.loads(process.stdout.readline()), ca_file)

    return begin


# --- start and end --------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGINT])
def test_it_serves_until_it_is_told_to_stop(console: Any, ending: signal.Signals) -> None:
    process, running = console()
    status, cookie = running.sign_in(running.launch_url.partition("#")[2])
    assert status == 303
    assert running.ask("GET", "/", Cookie=cookie)[0] == 200
    with running.open("GET", "/live?page=overview", Cookie=cookie) as events:
        assert events.readline()
        process.send_signal(ending)  # a page that stays open does not hold it up
        rest, errors = process.communicate(timeout=30)
    assert (process.returncode, rest) == (0, b"")
    assert errors.decode().count("\n") == 1
    assert "It is read-only" in errors.decode()


def test_the_link_signs_one_browser_in_once_and_its_token_reaches_no_log(console: Any, audit: Path) -> None:
    process, running = console()
    address, _, token = running.launch_url.partition("#")
    assert address == f"{running.url}/launch"
    assert running.ask("GET", "/launch")[0] == 200
    status, cookie = running.sign_in(token)
    assert status == 303
    assert running.sign_in(token)[0] == 401
    assert running.ask("GET", "/streams/orders/records", Cookie=cookie)[0] == 200
    assert running.ask("GET", f"/?token={token}")[0] == 401
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=30)
    noted = audit.read_text()
    assert "records.viewed" in noted
    for secret in (token, cookie.partition("=")[2]):
        assert secret not in errors.decode() + noted


@pytest.mark.parametrize(
    ("options", "url"),
    [
        (("--host-name", "console.example.org"), "http://console.example.org:{port}"),
        (("--host-name", "console.example.org:80"), "http://console.example.org:80"),
        (("--host-name", "console.example.org", "--base-path", "/x"), "http://console.example.org/x"),
        ((), "http://127.0.0.1:{port}"),
    ],
)
def test_the_address_is_the_one_that_browsers_find(console: Any, options: tuple[str, ...], url: str) -> None:
    _, running = console(*options)
    assert running.url == url.format(port=running.port)


def test_the_address_is_told_as_text(start: Start, audit: Path, local: LocalKinesis) -> None:
    process = start("console", "--port", "0", "--audit", str(audit))
    assert process.stdout is not None
    line = process.stdout.readline().decode()
    assert line.startswith("The console is at http://127.0.0.1:")
    assert "/launch#" in line


def test_a_port_in_use_is_told(run: Run, local: LocalKinesis, audit: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = run("console", "--port", str(port), "--audit", str(audit))
    assert (done.status, done.stdout) == (1, "")
    assert done.stderr == f"shardway: cannot serve on 127.0.0.1:{port}: Address already in use\n"


# --- what is refused ------------------------------------------------------------------------------


def test_another_address_than_loopback_needs_a_token_tls_and_a_name(run: Run, tmp_path: Path) -> None:
    token = a_token(tmp_path / "token")
    tls = ("--certificate", "cert.pem", "--key", "key.pem")
    for options, said in (
        (("--host", "0.0.0.0"), "give the console a token (--token-file)"),
        (("--host", "::"), "give the console a token (--token-file)"),
        (("--host", "192.0.2.1", "--token-file", token), "needs TLS"),
        (("--host", "0.0.0.0", "--token-file", token, "--host-name", "a.example"), "needs TLS"),
        (("--host", "0.0.0.0", "--token-file", token, *tls), "name the host that browsers ask for"),
    ):
        done = run("console", *options)
        assert (done.status, done.stdout) == (1, ""), options
        assert said in done.stderr, options
        assert TOKEN not in done.stderr


def test_options_that_are_not_safe_are_told_before_anything_is_served(run: Run, tmp_path: Path) -> None:
    token = a_token(tmp_path / "token")
    for options, said in (
        (("--token-file", a_token(tmp_path / "open", mode=0o644)), "others may read it: chmod 600"),
        (("--token-file", a_token(tmp_path / "short", "short")), "the token is short"),
        (("--token-file", str(tmp_path / "none")), "No such file"),
        (("--token-file", token, "--viewer-token-file", token), "the viewer's token is the writer's"),
        (("--certificate", "cert.pem"), "a certificate and its key go together"),
        (("--certificate", "none.pem", "--key", "none.pem"), "cannot serve on 127.0.0.1:0: No such file"),
        (("--base-path", "shardway/"), "a path begins with /"),
        (("--mask", "customer"), "mask 'customer'"),
        (("--user-header", "X-User"), "counts only from proxies"),
        (("--behind-proxy", "0.0.0.0/0"), "that is every address there is"),
        (("--writer", "ada"), "writers are users that a proxy names"),
        (("--application", "billing"), "write APPLICATION=STREAM"),
        (("--job", "s3://bucket/checkpoint"), "is read from a folder of this machine"),
        (("--host-name", "a b"), "write NAME or NAME:PORT"),
        (("--store", "mysql:x"), "is no store"),
    ):
        done = run("console", "--port", "0", *options)
        assert (done.status, done.stdout) == (1, ""), options
        assert said in done.stderr, (options, done.stderr)
        assert "Traceback" not in done.stderr
        assert TOKEN not in done.stderr


# --- roles, proxies and paths ---------------------------------------------------------------------


def test_it_is_read_only_unless_it_may_write(console: Any, tmp_path: Path) -> None:
    tokens = ("--token-file", a_token(tmp_path / "token"), "--viewer-token-file",
              a_token(tmp_path / "viewer", VIEWER_TOKEN))  # fmt: skip
    _, reads = console(*tokens)
    status, text = reads.ask("POST", WRITE, {"place": "x"}, **bearer())
    assert (status, "started without --allow-writes" in text) == (403, True)
    process, writes = console(*tokens, "--allow-writes")
    assert writes.ask("POST", WRITE, {"place": "x"}, **bearer())[0] == 404  # the gate let it through
    status, text = writes.ask("POST", WRITE, {"place": "x"}, **bearer(VIEWER_TOKEN))
    assert (status, "is a viewer" in text) == (403, True)
    assert writes.ask("GET", "/", **bearer("x" * 40))[0] == 401
    process.send_signal(signal.SIGTERM)
    assert b"Writers may change things" in process.communicate(timeout=30)[1]


def test_below_a_base_path_and_behind_a_proxy(console: Any) -> None:
    _, running = console(
        "--base-path", "/shardway", "--behind-proxy", "127.0.0.1", "--user-header", "X-User", "--writer", "ada",
        "--host-name", "console.example.org", "--allow-writes",
    )  # fmt: skip
    assert running.url == "http://console.example.org/shardway"
    said = {"Host": "console.example.org", "Accept": "text/html"}
    for user, role in (("ada", "ada, may write"), ("eve", "eve, read-only")):
        status, text = running.ask("GET", "/", X_User=user, **said)
        assert status == 200
        assert role in text_of(text)
        assert 'href="/shardway/jobs"' in text
    with running.open("GET", "/", **said) as answer:
        assert (answer.status, answer.headers["location"]) == (303, "/shardway/sign-in?next=%2F")
    running._base = ""
    assert running.ask("GET", "/", X_User="ada", **said)[0] == 404
    running._base = "/shardway"
    assert running.ask("GET", "/", X_User="ada", Host="evil.example")[0] == 403


def test_no_payload_is_shown_where_none_may_be(console: Any, local: LocalKinesis, tmp_path: Path) -> None:
    data = base64.b64encode(b'{"card": "4111 1111", "amount": 5}').decode()
    local.ask("PutRecord", json.dumps({"StreamName": "orders", "PartitionKey": "secret-key", "Data": data}).encode())
    page, token = "/streams/orders/records?from=trim-horizon", a_token(tmp_path / "token")
    _, shows = console("--token-file", token)
    assert "4111 1111" in shows.ask("GET", page, **bearer())[1]
    _, masks = console("--token-file", token, "--mask", ".card", "--mask", "key")
    text = masks.ask("GET", page, **bearer())[1]
    assert "amount" in text
    assert "4111 1111" not in text
    assert "secret-key" not in text
    _, hides = console("--token-file", token, "--no-payloads")
    text = hides.ask("GET", page, **bearer())[1]
    assert "1 shown" in text
    assert "amount" not in text
    assert hides.ask("GET", "/streams/orders/download?from=trim-horizon", **bearer())[0] == 403


def test_it_serves_https(console: Any, tmp_path: Path) -> None:
    from shardway.local.tls import make_certificate

    certificate, key = make_certificate(tmp_path, "127.0.0.1")
    given = ("--certificate", str(certificate), "--key", str(key), "--token-file", a_token(tmp_path / "token"))
    _, strict = console(*given, "--hsts", "--host-name", "console.example.org")
    with strict.open("GET", "/sign-in", Host="console.example.org") as answer:
        assert (answer.status, bool(answer.headers["strict-transport-security"])) == (200, True)
    _, running = console(*given)
    assert running.url.startswith("https://127.0.0.1:")
    with running.open("GET", "/", **bearer()) as answer:
        assert answer.status == 200
        assert "strict-transport-security" not in answer.headers


# --- beside the local service ---------------------------------------------------------------------


@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGINT])
def test_a_local_kinesis_has_its_console(
    start: Start, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, ending: signal.Signals
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    process = start("local", "--port", "0", "--stream", "orders:2", "--console", "--console-port", "0", "-o", "json")
    assert process.stdout is not None
    said = json.loads(process.stdout.readline())
    running = Console(said["console"])
    status, cookie = running.sign_in(running.launch_url.partition("#")[2])
    assert status == 303
    page = running.ask("GET", "/local?stream=orders", Cookie=cookie)[1]
    assert said["endpoint_url"] in page
    csrf = page.partition('name="csrf" value="')[2].partition('"')[0]
    form = {"stream": "orders", "how": "split", "shard": "shardId-000000000000", "csrf": csrf}
    status, text = running.ask("POST", "/local/reshard", form, Cookie=cookie, Origin=running.origin)
    assert status == 200
    assert "It is done." in text
    noted = [json.loads(line) for line in (tmp_path / "shardway" / "console-audit.jsonl").read_text().splitlines()]
    assert [(one["action"], one["outcome"]) for one in noted] == [
        ("session.signed_in", "done"),
        ("local.SplitShard", "begun"),
        ("local.SplitShard", "done"),
    ]
    process.send_signal(ending)
    rest, errors = process.communicate(timeout=30)
    assert (process.returncode, rest, errors) == (0, b"", b"")


def test_a_port_of_the_console_in_use_is_told_by_its_option(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = run("local", "--port", "0", "--console", "--console-port", str(port))
    assert (done.status, done.stdout) == (1, "")
    said = f"shardway: cannot serve the console on 127.0.0.1:{port}: Address already in use (--console-port)\n"
    assert done.stderr == said


def test_the_link_of_a_local_console_is_told_as_text(start: Start, monkeypatch: Any, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    process = start("local", "--port", "0", "--console", "--console-port", "0")
    assert process.stdout is not None
    while not (line := process.stdout.readline().decode()).startswith("Its console"):
        assert line
    assert "/launch#" in line
