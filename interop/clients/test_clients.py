"""The AWS SDKs for Go and JavaScript use ``shardway local`` as a user's tests do, and what they print is right."""

from __future__ import annotations

import hashlib
import json
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from interop.clients.programs import (
    BUILD_TIMEOUT_S,
    BUILT,
    HERE,
    RUN_TIMEOUT_S,
    Service,
    done,
    local_service,
    need_go,
    need_node,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

NUMBERED = 60

pytestmark = pytest.mark.timeout(BUILD_TIMEOUT_S + RUN_TIMEOUT_S)


@pytest.fixture(scope="module", params=["http", "https"])
def service(request: pytest.FixtureRequest) -> Iterator[Service]:
    with local_service(*(["--tls"] if request.param == "https" else [])) as running:
        yield running


def go_program() -> list[str]:
    need_go()
    BUILT.mkdir(parents=True, exist_ok=True)
    program = str(BUILT / "go-client")
    done(["go", "build", "-o", program, "."], HERE / "go", BUILD_TIMEOUT_S)
    return [program]


def node_program() -> list[str]:
    """The program is run where the packages are: below the repository, but not between its own files."""
    need_node()
    folder = BUILT / "node"
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("package.json", "client.js"):
        shutil.copy(HERE / "node" / name, folder / name)
    done(["npm", "install", "--no-package-lock", "--no-audit", "--no-fund"], folder, BUILD_TIMEOUT_S)
    return ["node", "--no-warnings", str(folder / "client.js")]


def made() -> dict[str, bytes]:
    """The records that a program writes at first: key to data."""
    return {
        "plain": b"text",
        "ключ-鍵-🔑": bytes(range(256)),
        "empty": b"",
        "é" * 128: "é🔑".encode("utf-16-le"),
        "large": b"\xfe" * (1024 * 1024 - len("large")),
    } | {f"key-{number}": str(number).encode() for number in range(NUMBERED)}


def rows(records: dict[str, bytes]) -> list[list[Any]]:
    """What a program prints of records."""
    return sorted([key, len(data), hashlib.sha256(data).hexdigest()] for key, data in records.items())


PROGRAMS = pytest.mark.parametrize(
    ("program", "protocols"),
    [(go_program, {"http": "HTTP/1.1", "https": "HTTP/2.0"}), (node_program, {"http": "h2", "https": "h2"})],
    ids=["go", "node"],
)


@PROGRAMS
def test_a_users_test_by_an_sdk(
    program: Callable[[], list[str]], protocols: dict[str, str], service: Service, request: pytest.FixtureRequest
) -> None:
    stream = request.node.name.replace("[", "-").strip("]")
    printed = done([*program(), stream], HERE, RUN_TIMEOUT_S, service.environment)
    report = json.loads(printed.splitlines()[-1])
    for name in ("written", "fanOut"):
        report[name] = {key: sorted(value) if isinstance(value, list) else value for key, value in report[name].items()}
    first, later = made(), {"after": b"the split"}
    missing = "ResourceNotFoundException"
    scheme = service.endpoint_url.partition(":")[0]
    print("ran:", ", ".join(report.pop("versions")))
    assert report.pop("created") == {"missing": missing, "status": "ACTIVE", "shards": 2, "protocol": protocols[scheme]}
    assert report.pop("written") == {"written": rows(first), "refused": 0, "numbers": NUMBERED}
    assert sorted(report.pop("read")) == rows(first)
    assert report.pop("split") == {"ended": 1, "children": 2}
    assert report.pop("fanOut") == {"read": rows(first | later), "children": 2, "missing": missing}
    assert sorted(report.pop("again")) == rows(first | later)
    throttled = "ProvisionedThroughputExceededException"
    limits = {"retried": 3, "throttled": {"type": throttled, "attempts": 3}, "codes": [throttled]}
    assert report.pop("limits") == limits
    assert report.pop("expired") == "ExpiredIteratorException"
    assert report.pop("table") == {
        "missing": missing,
        "refused": "ConditionalCheckFailedException",
        "cancelled": "TransactionCanceledException",
        "counters": ["2", "2"],
        "bytes": hashlib.sha256(bytes([0, 255])).hexdigest(),
    }
    assert report == {}
