"""The service's own controls over HTTP, under ``/_shardway/``.

The controls are the clock, faults, limits, counts, reset and health, for tests and tools in other processes. They
answer programs that reach the service: those of this machine, and others only where it listens for others, as in a
container. They never answer a web page, and show no payload.
"""

from __future__ import annotations

import ipaddress
import os
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import urlsplit

import msgspec

from shardway import __version__
from shardway.local.faults import Fault
from shardway.local.options import LOOPBACK

if TYPE_CHECKING:
    from collections.abc import Callable

    from shardway.local.answers import Answers
    from shardway.local.clock import VirtualClock
    from shardway.local.counters import Counters
    from shardway.local.faults import FaultPlan, OrderedFault
    from shardway.local.http_messages import Answer, Request
    from shardway.local.model import KinesisModel, Limits
    from shardway.local.neighbours import Neighbours
    from shardway.local.options import LocalOptions
    from shardway.local.regions import Regions


PREFIX = b"/_shardway/"
_REFUSED = (
    "the controls answer no web page, and only programs on this machine, "
    "unless the service listens on another address than loopback (--host)"
)


class Controlled(Protocol):
    """What the controls ask of the server that they are for."""

    options: LocalOptions
    clock: VirtualClock
    limits: Limits
    counters: Counters
    faults: FaultPlan
    regions: Regions
    neighbours: Neighbours

    @property
    def model(self) -> KinesisModel:
        """Kinesis in the home region."""

    @property
    def endpoint_url(self) -> str:
        """The URL at which clients reach the service."""

    def change_limits(self, changes: dict[str, Any]) -> None:
        """Switch limits on or off, or set their numbers. Raises ``ValueError``."""

    def reset(self) -> None:
        """Make all as new."""


class _Advance(msgspec.Struct, forbid_unknown_fields=True):
    advance_s: float


class Control:
    """Answers the control requests of one server."""

    def __init__(self, server: Controlled, answers: Answers) -> None:
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
        if b"origin" in request.headers or not self._is_near(request):
            return self._json(403, {"error": _REFUSED})
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

    def _is_near(self, request: Request) -> bool:
        """Return True for a program that may call. Of this machine's, a web page under a name that leads to loopback
        gives itself away by the name, because a GET of its own has no origin. Where other machines may call, names
        tell nothing: a container is reached by whatever name its engine, or another container, has for it.
        """
        if not self._server.options.on_loopback:
            return True
        try:
            near = ipaddress.ip_address(request.peer).is_loopback
            host = urlsplit("//" + request.headers.get(b"host", b"").decode("latin-1")).hostname
        except ValueError:
            return False
        return near and host in LOOPBACK

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
        return [_order_view(order) for order in self._server.faults.orders()]

    def _add_fault(self, body: bytes) -> Any:
        return _order_view(self._server.faults.add(msgspec.json.decode(body, type=Fault)))

    def _clear_faults(self, body: bytes) -> Any:
        self._server.faults.clear()
        return {}

    def _one_fault(self, method: bytes, number: str) -> Answer:
        for order in self._server.faults.orders():
            if str(order.number) == number:
                if method == b"DELETE":
                    order.clear()
                return self._json(200, _order_view(order))
        return self._json(404, {"error": f"no fault {number} is ordered"})

    def _reset(self, body: bytes) -> Any:
        self._server.reset()
        return {}


def _order_view(order: OrderedFault) -> dict[str, Any]:
    return {"id": order.number, "hits": order.hits, "fault": order.fault}
