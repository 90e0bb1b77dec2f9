"""Which clients are connected to the console, and for how long each may take to send a request.

A silent client pays nothing for its connection, and holds a place that another visitor needs. So there are three
bounds. A request has a deadline from its first byte to its last. An address has a share of the places. When no place is
left, the console closes the connection that has waited longest for the rest of its request.
"""

from __future__ import annotations

import ipaddress
from itertools import chain
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterator

HEAD_S = 10.0
"""Seconds in which the head of a request has to come: from the beginning of the connection, or from its first byte."""
BODY_S = 12.0
"""Seconds in which the body of a request has to come, behind its head: a little more than the gate gives to a form, so
that the gate's answer says it.
"""
CONNECTIONS_MAX = 512
OF_ADDRESS_MAX = 128
"""The connections of one address, or of one IPv6 network of 64 bits, which is what one machine may choose from."""

C = TypeVar("C")


class Places(Generic[C]):
    """The open connections by their addresses, and which of them wait for the rest of a request. No I/O."""

    def __init__(
        self,
        has_no_share: Callable[[str], bool] = lambda _: False,
        *,
        connections_max: int = CONNECTIONS_MAX,
        of_address_max: int = OF_ADDRESS_MAX,
    ) -> None:
        """``has_no_share`` tells addresses that bring the connections of many clients, as a proxy does."""
        self._has_no_share = has_no_share
        self._connections_max = connections_max
        self._of_address_max = of_address_max
        self._group_of: dict[C, str] = {}
        self._groups: dict[str, dict[C, None]] = {}
        self._waiting_clients: dict[C, None] = {}

    def __len__(self) -> int:
        return len(self._group_of)

    def enter(self, one: C, address: str) -> C | None:
        """Give a new connection a place. Return the connection that has to go for it, which may be the new one."""
        group = _group(address)
        of_group = self._groups.setdefault(group, {})
        self._group_of[one] = group
        of_group[one] = None
        gone: C | None = None
        if len(of_group) > self._of_address_max and not self._has_no_share(address):
            gone = next(self._waiting_among(of_group), one)
        elif len(self._group_of) > self._connections_max:
            largest = max(self._groups.values(), key=len)
            gone = next(chain(self._waiting_among(largest), self._waiting_clients), one)
        if gone is not None:
            self.leave(gone)
        return gone

    def leave(self, one: C) -> None:
        """Take back the place of a connection. It may be called again."""
        group = self._group_of.pop(one, None)
        if group is not None:
            del self._groups[group][one]
            if not self._groups[group]:
                del self._groups[group]
        self._waiting_clients.pop(one, None)

    def waits(self, one: C, *, waits: bool) -> None:
        """Note whether a connection waits for the rest of a request."""
        self._waiting_clients.pop(one, None)
        if waits and one in self._group_of:
            self._waiting_clients[one] = None

    def _waiting_among(self, of_group: dict[C, None]) -> Iterator[C]:
        return (one for one in self._waiting_clients if one in of_group)


def _group(address: str) -> str:
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(found, ipaddress.IPv6Address):
        if found.ipv4_mapped is not None:
            return str(found.ipv4_mapped)
        return str(ipaddress.ip_network((found, 64), strict=False))
    return str(found)


class WatchedProtocol(H11Protocol):
    """A connection that has to send each request in time, and that has one of the `Places`.

    h11 reads it, and no other parser that may be installed: h11 bounds the head of a request.
    """

    places: ClassVar[Places[WatchedProtocol]]

    @classmethod
    def among(cls, places: Places[WatchedProtocol]) -> type[WatchedProtocol]:
        """Return the class of the connections that share these places: uvicorn makes them itself."""
        return type("PlacedProtocol", (cls,), {"places": places})

    def __init__(self, *args: Any, **arguments: Any) -> None:
        super().__init__(*args, **arguments)
        self._stage: object = None
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """asyncio: a client has connected."""
        super().connection_made(transport)
        gone = self.places.enter(self, self.client[0] if self.client else "")
        self._watch()
        if gone is not None:
            gone.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """asyncio: the connection has ended."""
        self.places.leave(self)
        self._watch_no_more()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """asyncio: bytes have come."""
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        """uvicorn: an answer was sent."""
        super().on_response_complete()
        self._watch()

    def _watch(self) -> None:
        """Begin a deadline where a part of a request begins to be waited for."""
        state = self.conn.their_state
        stage = state if state in (h11.IDLE, h11.SEND_BODY) and not self.transport.is_closing() else None
        if stage is self._stage:
            return
        self._watch_no_more()
        self._stage = stage
        self.places.waits(self, waits=stage is not None)
        if stage is not None:
            after_s = HEAD_S if stage is h11.IDLE else BODY_S
            self._deadline = self.loop.call_later(after_s, self.transport.abort)

    def _watch_no_more(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
