"""The service's clock, its counts of calls, and its own controls over HTTP, under ``/_shardway/``.

The controls are the clock, faults, limits, counts, reset and health, for tests and tools in other processes. They
answer on loopback only, never to a web page, and show no payload.
"""

from __future__ import annotations

import ipaddress
import os
import threading
import time
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import msgspec

from shardway import __version__
from shardway.local.faults import Fault
from shardway.local.http import tag_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from shardway.local.faults import OrderedFault
    from shardway.local.gate import Answers
    from shardway.local.http import Answer, Request
    from shardway.local.server import LocalServer


# --- the clock ------------------------------------------------------------------------------------
# The local service's clock shows the machine's time, which a test can move on, or a time that only a test moves.

SET_BACK_S = 1.0
"""Seconds. When the machine's clock is set back by more than this, the service's clock goes on from where it was."""


class VirtualClock:
    """Epoch seconds for the service: arrival times, iterator expiry, retention, the ``Date`` header.

    ``start_s`` is where the clock begins (None: the machine's time). It runs as the machine's clock does, adjustments
    included, so that a client on this machine finds the times it expects; but it never goes back. With
    ``running=False`` only :meth:`advance` moves it. Any thread may use it.
    """

    def __init__(
        self, start_s: float | None = None, *, running: bool = True, machine: Callable[[], float] = time.time
    ) -> None:
        self._machine = machine if running else lambda: 0.0
        begin = machine() if start_s is None else start_s
        self._ahead_s = begin - self._machine()
        self._last = begin
        self._lock = threading.Lock()
        self._listeners: list[Callable[[float], None]] = []

    def now(self) -> float:
        """The service's time in seconds since the epoch."""
        now = self._machine() + self._ahead_s
        if now >= self._last:
            self._last = now
        elif now < self._last - SET_BACK_S:
            with self._lock:
                self._ahead_s += max(0.0, self._last - (self._machine() + self._ahead_s))
        return self._last

    __call__ = now

    def advance(self, seconds: float) -> float:
        """Move the clock forward, and return the new time. What is due by then happens now."""
        if seconds < 0:
            raise ValueError("the service's clock does not go back")
        with self._lock:
            self._ahead_s += seconds
        for listener in list(self._listeners):
            listener(seconds)
        return self.now()

    def on_advance(self, listener: Callable[[float], None]) -> None:
        """Have ``listener`` called (in the advancing thread) after each move, with its seconds."""
        self._listeners.append(listener)


# --- what was asked -------------------------------------------------------------------------------
# Calls are counted per operation and per user-agent tag.

TAGS_MAX = 1000
"""User agents and tags beyond this many are counted under the tag ``other``."""


class Count(msgspec.Struct):
    """The sums of one operation's calls since the start or the last reset."""

    calls: int = 0
    errors: int = 0
    """Calls answered with an error, or with nothing (a connection broken on order)."""
    records: int = 0
    """Records delivered (GetRecords, SubscribeToShard) or stored (PutRecord, PutRecords)."""
    response_bytes: int = 0
    """Bytes of response bodies."""


class Stats(msgspec.Struct):
    """A snapshot of the counts: ``operations`` has the sums of all clients, ``tags`` those of each ``tag/<name>`` that
    clients send.
    """

    operations: dict[str, Count]
    tags: dict[str, dict[str, Count]]

    def calls(self, operation: str, tag: str | None = None) -> int:
        """Return how often ``operation`` was called, by all clients or by the clients of one tag."""
        table = self.operations if tag is None else self.tags.get(tag, {})
        return table[operation].calls if operation in table else 0

    def records(self, operation: str, tag: str | None = None) -> int:
        """Return how many records ``operation`` moved, for all clients or for the clients of one tag."""
        table = self.operations if tag is None else self.tags.get(tag, {})
        return table[operation].records if operation in table else 0


class Counters:
    """The running counts of one server. They are used on the server's loop only."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Begin again at zero."""
        self._counts: dict[tuple[str, str], Count] = {}
        self._tag_of: dict[bytes, str] = {}

    def of(self, operation: str, user_agent: bytes) -> Count:
        """Return the counts to which a call of this operation is added."""
        tag = self._tag_of.get(user_agent)
        if tag is None:
            tag = self._remember(user_agent)
        key = (operation, tag)
        count = self._counts.get(key)
        if count is None:
            count = self._counts[key] = Count()
        return count

    def _remember(self, user_agent: bytes) -> str:
        if len(self._tag_of) >= TAGS_MAX:
            return "other"
        tag = self._tag_of[user_agent] = tag_of(user_agent)
        return tag

    def snapshot(self) -> Stats:
        """Return the counts as they are now; clients without a tag are under ``""``."""
        operations: dict[str, Count] = {}
        tags: dict[str, dict[str, Count]] = {}
        for (operation, tag), count in sorted(self._counts.items()):
            total = operations.setdefault(operation, Count())
            total.calls += count.calls
            total.errors += count.errors
            total.records += count.records
            total.response_bytes += count.response_bytes
            tags.setdefault(tag, {})[operation] = msgspec.structs.replace(count)
        return Stats(operations, tags)


# --- the controls ---------------------------------------------------------------------------------

PREFIX = b"/_shardway/"


class _Advance(msgspec.Struct, forbid_unknown_fields=True):
    advance_s: float


class Control:
    """Answers the control requests of one server."""

    def __init__(self, server: LocalServer, answers: Answers) -> None:
        self._server = server
        self._answers = answers
        self._actions: dict[tuple[bytes, str], Callable[[bytes], Any]] = {
            (b"GET", "health"): self._health,
            (b"GET", "clock"): self._clock,
            (b"POST", "clock"): self._advance,
            (b"GET", "stats"): self._stats,
            (b"DELETE", "stats"): self._reset_stats,
            (b"GET", "limits"): self._limits,
            (b"POST", "limits"): self._set_limits,
            (b"GET", "faults"): self._faults,
            (b"POST", "faults"): self._add_fault,
            (b"DELETE", "faults"): self._clear_faults,
            (b"POST", "reset"): self._reset,
        }

    def __call__(self, request: Request) -> Answer:
        """Answer one control request: JSON, with ``error`` in it when it was not done."""
        if not self._from_here(request):
            return self._json(403, {"error": "the controls answer to programs on this machine only"})
        path = request.target[len(PREFIX) :].partition(b"?")[0].decode("latin-1").rstrip("/")
        name, _, number = path.partition("/")
        if name == "faults" and number:
            return self._one_fault(request.method, number)
        action = self._actions.get((request.method, path))
        if action is None:
            known = ", ".join(sorted(f"{method.decode()} {path}" for method, path in self._actions))
            return self._json(404, {"error": f"no such control; there are: {known}"})
        try:
            return self._json(200, action(request.body))
        except ValueError as fault:  # msgspec's errors are ValueErrors
            return self._json(400, {"error": str(fault)})

    def _from_here(self, request: Request) -> bool:
        """Return True for a program on this machine: a web page's request names an origin, or a host that is not this
        one.
        """
        try:
            near = ipaddress.ip_address(request.peer).is_loopback
            host = urlsplit("//" + request.headers.get(b"host", b"").decode("latin-1")).hostname
        except ValueError:
            return False
        own = ("localhost", "127.0.0.1", "::1", self._server.options.host)
        return near and b"origin" not in request.headers and host in own

    def _json(self, status: int, value: Any) -> Answer:
        return self._answers.raw(status, msgspec.json.encode(value), b"Content-Type: application/json\r\n")

    def _health(self, body: bytes) -> Any:
        server = self._server
        return {
            "status": "ok",
            "version": __version__,
            "pid": os.getpid(),
            "endpoint_url": server.endpoint_url,
            "region": server.options.region,
            "streams": len(server.model.state.streams),
            "regions": {region.name: len(region.model.state.streams) for region in server.regions},
            "neighbours": server.neighbours.describe(),
        }

    def _clock(self, body: bytes) -> Any:
        return {"now_s": self._server.clock.now()}

    def _advance(self, body: bytes) -> Any:
        return {"now_s": self._server.clock.advance(msgspec.json.decode(body, type=_Advance).advance_s)}

    def _stats(self, body: bytes) -> Any:
        return self._server.counters.snapshot()

    def _reset_stats(self, body: bytes) -> Any:
        self._server.counters.reset()
        return {}

    def _limits(self, body: bytes) -> Any:
        return self._server.limits

    def _set_limits(self, body: bytes) -> Any:
        changes = msgspec.json.decode(body, type=dict[str, Any])
        self._server.change_limits(changes)
        return self._server.limits

    def _faults(self, body: bytes) -> Any:
        return [_shown(order) for order in self._server.faults.orders()]

    def _add_fault(self, body: bytes) -> Any:
        return _shown(self._server.faults.add(msgspec.json.decode(body, type=Fault)))

    def _clear_faults(self, body: bytes) -> Any:
        self._server.faults.clear()
        return {}

    def _one_fault(self, method: bytes, number: str) -> Answer:
        for order in self._server.faults.orders():
            if str(order.number) == number:
                if method == b"DELETE":
                    order.clear()
                return self._json(200, _shown(order))
        return self._json(404, {"error": f"no fault {number} is ordered"})

    def _reset(self, body: bytes) -> Any:
        self._server.reset()
        return {}


def _shown(order: OrderedFault) -> dict[str, Any]:
    return {"id": order.number, "hits": order.hits, "fault": order.fault}
