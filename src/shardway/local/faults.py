"""Faults that a test orders: they say which calls they strike, how often, and what happens to the calls.

A fault is a value; :class:`FaultPlan` holds those that are ordered and says, call by call, which one
strikes. All choices come from the fault's own seed, so the same calls in the same order meet the same
faults.
"""

from __future__ import annotations

import random
import threading
from typing import Literal, NamedTuple

import msgspec

How = Literal[
    "throttle",
    "server_error",
    "access_denied",
    "expired_token",
    "expired_iterator",
    "error",
    "reset",
    "lost_reply",
    "truncate",
    "disconnect",
    "go_away",
    "delay",
    "partial",
]
FAULTS_MAX = 1000
"""The faults that may be ordered at a time."""
DELAY_S_MAX = 600.0
ANY = "*"
SUBSCRIPTION_EVENT = "SubscribeToShardEvent"
"""The ``operation`` of a fault that strikes between the events of a running subscription."""


class Fault(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What happens to some calls, and which calls these are.

    ``how``:

    - ``throttle``: refused for the rate; nothing was done.
    - ``server_error``: HTTP 500; done before or not (``applied``).
    - ``access_denied``, ``expired_token``, ``expired_iterator``: refused as AWS does.
    - ``error``: refused with ``code``, ``message`` and ``status``.
    - ``reset``: the connection is torn down (RST) without an answer; done before or not (``applied``).
    Over HTTP/2 the call's stream alone is reset (RST_STREAM, INTERNAL_ERROR).
    - ``lost_reply``: done, then the connection is closed (FIN) without an answer; over HTTP/2 the stream is
    given up (RST_STREAM, CANCEL).
    - ``truncate``: as ``lost_reply``, after half of the answer's body.
    - ``disconnect``: as ``reset``, but over HTTP/2 the whole connection is torn down, with every call on it.
    - ``go_away``: done and answered; the client has to open another connection for its next call (GOAWAY, and
    what is on its way is still answered; over HTTP/1.1: closed after the answer).
    - ``delay``: after ``delay_s`` seconds of real time the call goes on, to the next fault that strikes it
    or to its end.
    - ``partial``: of a PutRecords, each entry (to ``shard``, if given) is refused with the chance
    ``share``; the others are
      stored.

    Raises ``ValueError`` when it contradicts itself.
    """

    how: How
    operation: str = ANY
    """The operation that the fault strikes: ``GetRecords``, ``UpdateItem``, ...; ``*``: every call;
    ``SubscribeToShardEvent``: the events of subscriptions.
    """
    stream: str | None = None
    """The stream whose calls alone the fault strikes. A fault with it, or with ``shard``, strikes no call to DynamoDB,
    CloudWatch or STS.
    """
    shard: str | None = None
    """The shard whose calls alone the fault strikes: the shard of an iterator, or the one to which a write's key leads.
    """
    tag: str | None = None
    """The fault strikes only clients that send ``tag/<tag>`` in their User-Agent."""
    skip: int = 0
    """The number of matching calls that are let through first."""
    count: int | None = None
    """How often the fault strikes; None: until it is cleared."""
    probability: float = 1.0
    seed: int = 0
    applied: bool = False
    delay_s: float = 0.0
    share: float = 1.0
    code: str | None = None
    """The error code, for ``error`` and to replace the usual one of ``throttle``, ``server_error`` and
    ``partial``."""
    message: str | None = None
    status: int = 400

    def __post_init__(self) -> None:
        wrong = [
            text
            for text, found in (
                ("probability lies in 0..1", not 0 <= self.probability <= 1),
                ("share lies in 0..1", not 0 <= self.share <= 1),
                ("skip is 0 or more", self.skip < 0),
                ("count is 1 or more", self.count is not None and self.count < 1),
                (f"delay_s lies in 0..{DELAY_S_MAX:.0f}", not 0 <= self.delay_s <= DELAY_S_MAX),
                ("a delay needs delay_s", self.how == "delay" and not self.delay_s),
                ("an error needs its code", self.how == "error" and not self.code),
                ("a code is letters, digits and dots", not _is_code(self.code)),
                ("status lies in 400..599", not 400 <= self.status <= 599),
                (
                    "only PutRecords can fail in part",
                    self.how == "partial" and self.operation != "PutRecords",
                ),
            )
            if found
        ]
        if wrong:
            raise ValueError(f"fault {self.how}: {'; '.join(wrong)}")


def _is_code(code: str | None) -> bool:
    return code is None or (code.isascii() and code.replace(".", "").replace("_", "").isalnum())


class Facts(NamedTuple):
    """The facts of a call that a fault chooses by."""

    operation: str
    tag: str = ""
    stream: str | None = None
    shards: frozenset[str] = frozenset()


class DrawnFaults(NamedTuple):
    """The faults that strike a call: the sum of the delays, then at most one other fault."""

    delay_s: float
    order: OrderedFault | None


class OrderedFault:
    """A fault that is in force: it says how often it struck, and can be taken back. Any thread may use it."""

    def __init__(self, plan: FaultPlan, fault: Fault, number: int) -> None:
        self._plan = plan
        self._rng = random.Random(fault.seed)
        self._to_skip = fault.skip
        self.fault = fault
        self.number = number
        """The fault's number in the controls over HTTP."""
        self.hits = 0
        """How often the fault struck."""

    @property
    def spent(self) -> bool:
        """True when the fault has struck as often as it was to."""
        return self.fault.count is not None and self.hits >= self.fault.count

    def clear(self) -> None:
        """Take the fault back; ``hits`` stays."""
        self._plan.remove(self)

    def strikes(self, facts: Facts) -> bool:
        """Return whether the fault strikes this call, and count it."""
        fault = self.fault
        if self.spent or not self._matches(facts):
            return False
        if self._to_skip > 0:
            self._to_skip -= 1
            return False
        if fault.probability < 1 and self._rng.random() >= fault.probability:
            return False
        self.hits += 1
        return True

    def chooses(self) -> bool:
        """Return whether the fault strikes one entry of a write that fails in part."""
        return self.fault.share >= 1 or self._rng.random() < self.fault.share

    def _matches(self, facts: Facts) -> bool:
        fault = self.fault
        if fault.operation != facts.operation and not (
            fault.operation == ANY and facts.operation != SUBSCRIPTION_EVENT
        ):
            return False
        return (
            (fault.tag is None or fault.tag == facts.tag)
            and (fault.stream is None or fault.stream == facts.stream)
            and (fault.shard is None or fault.shard in facts.shards)
        )


class FaultPlan:
    """The faults that are in force, in the order in which they were ordered."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._orders: tuple[OrderedFault, ...] = ()
        self._numbers = 0
        self.active = False
        """False: no call needs to be looked at."""

    def add(self, fault: Fault) -> OrderedFault:
        """Order a fault. Raises ``ValueError`` when there are too many already."""
        with self._lock:
            if len(self._orders) >= FAULTS_MAX:
                raise ValueError(f"{FAULTS_MAX} faults are ordered already: clear some")
            self._numbers += 1
            order = OrderedFault(self, fault, self._numbers)
            self._set((*self._orders, order))
        return order

    def remove(self, order: OrderedFault) -> None:
        """Take one fault back."""
        with self._lock:
            self._set(tuple(one for one in self._orders if one is not order))

    def clear(self) -> None:
        """Take all faults back."""
        with self._lock:
            self._set(())

    def orders(self) -> tuple[OrderedFault, ...]:
        """Return all faults that are in force or spent, until they are cleared."""
        return self._orders

    def _set(self, orders: tuple[OrderedFault, ...]) -> None:
        self._orders = orders
        self.active = bool(orders)

    def draw(self, facts: Facts) -> DrawnFaults | None:
        """Return the faults that strike this call; None in the usual case."""
        delay_s = 0.0
        for order in self._orders:
            if not order.strikes(facts):
                continue
            delay_s += order.fault.delay_s
            if order.fault.how != "delay":
                return DrawnFaults(delay_s, order)
        return DrawnFaults(delay_s, None) if delay_s else None
