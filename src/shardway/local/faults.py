"""Faults that a test orders: they say which calls they strike, how often, and what happens to the calls.

A fault is a value; :class:`FaultPlan` holds those that are ordered and says, call by call, which one
strikes. All choices come from the fault's own seed, so the same calls in the same order meet the same
faults.
"""

from __future__ import annotations

import asyncio
import random
import threading
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import msgspec

from shardway.local.http import AfterAnswer, Answer, Request, tag_of
from shardway.local.kinesis import SUBSCRIBE, EventFault
from shardway.local.model import ModelError
from shardway.local.model.identifiers import read_iterator, shard_index_of, shard_name

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from shardway.local.kinesis import Call, KinesisFace
    from shardway.local.model import KinesisModel
    from shardway.local.model.state import Stream


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
    """What happens to which calls.

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
    """The facts of a call by which a fault chooses it."""

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


# --- what a call is about -------------------------------------------------------------------------
# A call is about a stream and shards, so that a fault can be ordered for them alone.

_SHARD_MEMBERS = ("ShardId", "ShardToSplit", "ShardToMerge", "AdjacentShardToMerge")


class Target(NamedTuple):
    """The stream and the shards of a call, as far as it names them."""

    stream: str | None
    shards: frozenset[str]


_NOTHING = Target(None, frozenset())


def target_of(model: KinesisModel, operation: str, body: bytes) -> Target:
    """Return the target of a JSON request. A request that the model would refuse anyhow has an empty one."""
    try:
        request = msgspec.json.decode(body)
    except (ValueError, RecursionError):
        return _NOTHING
    if not isinstance(request, dict):
        return _NOTHING
    iterator = request.get("ShardIterator")
    if isinstance(iterator, str):
        return _of_iterator(iterator)
    stream = _stream_name(request)
    if operation in ("PutRecord", "PutRecords"):
        known = model.state.streams.get(stream or "")
        entries = request.get("Records") if operation == "PutRecords" else [request]
        if known is None or not isinstance(entries, list):
            return Target(stream, frozenset())
        return Target(stream, frozenset(name for entry in entries if (name := shard_of_entry(known, entry))))
    named = (request.get(member) for member in _SHARD_MEMBERS)
    indexes = (shard_index_of(name) for name in named if isinstance(name, str))
    return Target(stream, frozenset(shard_name(index) for index in indexes if index is not None))


def shard_of_entry(stream: Stream, entry: Any) -> str | None:
    """Return the shard that a record to be put would go to; None when the entry is not valid."""
    if not isinstance(entry, dict) or not stream.open_shards:
        return None
    explicit, key = entry.get("ExplicitHashKey"), entry.get("PartitionKey")
    if isinstance(explicit, str) and explicit.isascii() and explicit.isdigit() and int(explicit) < 2**128:
        return stream.route_hash(int(explicit)).name
    return stream.route_keys([key])[0].name if isinstance(key, str) and key else None


def _of_iterator(text: str) -> Target:
    found = read_iterator(text)
    if found is None:
        return _NOTHING
    state, stream = found
    return Target(stream, frozenset((shard_name(state.shard_index),)))


def _stream_name(request: dict[str, Any]) -> str | None:
    name = request.get("StreamName")
    if isinstance(name, str):
        return name
    for member in ("StreamARN", "ConsumerARN", "ResourceARN"):
        arn = request.get(member)
        if isinstance(arn, str):
            return arn.partition(":stream/")[2].partition("/")[0] or None
    return None


# --- calls and their faults -----------------------------------------------------------------------

_DATA_PLANE = frozenset(("GetRecords", "PutRecord", "PutRecords", "GetShardIterator", SUBSCRIBE))
_THROTTLED = "ProvisionedThroughputExceededException"


def refusal(fault: Fault, operation: str, target: Target) -> ModelError:
    """Return the error that a fault makes of a call, worded as AWS words it."""
    where = f"shard {min(target.shards, default='shardId-000000000000')} in stream {target.stream or '(none)'}"
    if fault.how == "throttle":
        data_plane = operation in _DATA_PLANE or operation == SUBSCRIPTION_EVENT
        code = _THROTTLED if data_plane else "LimitExceededException"
        text, status = (f"Rate exceeded for {where}." if data_plane else "Rate exceeded."), 400
    elif fault.how == "server_error":
        code, text, status = "InternalFailureException", "The service has failed on your request.", 500
    elif fault.how == "access_denied":
        code, status = "AccessDeniedException", 400
        text = f"User is not authorized to perform: kinesis:{operation} because no policy allows the action"
    elif fault.how == "expired_token":
        code, status = "ExpiredTokenException", 400
        text = "The security token included in the request is expired"
    elif fault.how == "expired_iterator":
        code, status = "ExpiredIteratorException", 400
        text = "Iterator expired. The iterator was created more than 5 minutes ago and has been let go."
    else:
        code, text, status = "InternalFailureException", "An ordered fault.", fault.status
    return ModelError(fault.code or code, fault.message or text, status=status)


_ENDINGS = {
    "reset": AfterAnswer.RESET,
    "disconnect": AfterAnswer.DISCONNECT,
    "lost_reply": AfterAnswer.CLOSE,
    "truncate": AfterAnswer.CLOSE,
    "go_away": AfterAnswer.LEAVE,
}
DONE_FIRST = frozenset(("lost_reply", "truncate", "go_away"))
"""The faults that strike after the call was done."""


def spoilt(fault: Fault, done: Answer | None) -> Answer | None:
    """Return what the fault leaves of an answer, or of none; None when the fault is a refusal."""
    ending = _ENDINGS.get(fault.how)
    if ending is None:
        return None
    if done is not None and fault.how == "go_away":
        return Answer(done.head, done.body, ending, done.stream)
    if done is not None and fault.how == "truncate":
        return Answer(done.head, done.body[: len(done.body) // 2], ending)
    return Answer(b"", ending=ending)


class FaultyKinesis:
    """Takes the place of :class:`KinesisFace` for as long as faults are ordered."""

    def __init__(self, face: KinesisFace, plan: FaultPlan) -> None:
        self._face = face
        self._plan = plan

    def __call__(self, request: Request) -> Answer | Awaitable[Answer]:
        """Answer one request, faults included."""
        call = self._face.admit(request)
        if isinstance(call, Answer):
            return self._face.refused(call, request)
        target = target_of(self._face.model, call.operation, call.body)
        drawn = self._plan.draw(Facts(call.operation, tag_of(call.user_agent), target.stream, target.shards))
        if drawn is None:
            return self._face.perform(call)
        if not drawn.delay_s:
            return self._strike(call, target, drawn.order)
        return self._strike_later(drawn.delay_s, call, target, drawn.order)

    async def _strike_later(self, delay_s: float, call: Call, target: Target, order: OrderedFault | None) -> Answer:
        await asyncio.sleep(delay_s)
        answer = self._strike(call, target, order)
        return answer if isinstance(answer, Answer) else await answer

    def _strike(self, call: Call, target: Target, order: OrderedFault | None) -> Answer | Awaitable[Answer]:
        if order is None:
            return self._face.perform(call)
        fault = order.fault
        if fault.how == "partial":
            return self._put_in_part(call, order)
        if fault.how in DONE_FIRST or fault.applied:
            return self._after_doing(call, target, fault)
        self._face.count(call).errors += 1
        return spoilt(fault, None) or self._face.error(call, refusal(fault, call.operation, target))

    async def _after_doing(self, call: Call, target: Target, fault: Fault) -> Answer:
        """Do the call, and spoil its answer."""
        answer = self._face.perform(call)
        if fault.how != "go_away":
            self._face.spoilt(call)
            if answer.stream is not None:
                await answer.stream(_NOWHERE)  # ends at once, and lets go of the subscription
        return spoilt(fault, answer) or self._face.error(call, refusal(fault, call.operation, target))

    def spoil_event(self, call: Call) -> EventFault | None:
        """Return what happens to the next event of a subscription; None: it goes out."""
        if not self._plan.active:
            return None
        target = target_of(self._face.model, SUBSCRIBE, call.body)
        facts = Facts(SUBSCRIPTION_EVENT, tag_of(call.user_agent), target.stream, target.shards)
        drawn = self._plan.draw(facts)
        if drawn is None:
            return None
        if drawn.order is None:
            return EventFault(drawn.delay_s)
        fault = drawn.order.fault
        if fault.how in _ENDINGS:
            return EventFault(drawn.delay_s, ending=_ENDINGS[fault.how])
        return EventFault(drawn.delay_s, error=refusal(fault, SUBSCRIPTION_EVENT, target))

    # --- writes that fail in part ---------------------------------------------------------------------

    def _put_in_part(self, call: Call, order: OrderedFault) -> Answer:
        """Refuse some entries of a PutRecords and store the others."""
        fault = order.fault
        request = msgspec.json.decode(call.body)
        entries = request.get("Records")
        stream = self._face.model.state.streams.get(target_of(self._face.model, "ListShards", call.body).stream or "")
        if stream is None or not isinstance(entries, list):
            return self._face.perform(call)  # the model refuses it as a whole
        shards = [shard_of_entry(stream, entry) for entry in entries]
        refused = {
            at: _refused_entry(fault, shard, stream.name, self._face.model.account_id)
            for at, shard in enumerate(shards)
            if shard is not None and fault.shard in (None, shard) and order.chooses()
        }
        kept = [entry for at, entry in enumerate(entries) if at not in refused]
        count = self._face.count(call)
        stored: list[Any] = []
        if kept or not refused:
            rest = msgspec.json.encode(request | {"Records": kept})
            try:
                stored = msgspec.json.decode(self._face.model.handle("PutRecords", rest))["Records"]
            except ModelError as error:
                count.errors += 1
                return self._face.error(call, error)
        return self._face.answered(call, _merged(stored, refused), count, len(stored))


def _refused_entry(fault: Fault, shard: str, stream: str, account_id: str) -> dict[str, str]:
    code = fault.code or _THROTTLED
    text = f"Rate exceeded for shard {shard} in stream {stream} under account {account_id}."
    if code == "InternalFailure":
        text = "Internal Service Failure"
    return {"ErrorCode": code, "ErrorMessage": fault.message or text}


def _merged(stored: list[Any], refused: dict[int, dict[str, str]]) -> bytes:
    """Return the answer, whose entries are in the order of the request."""
    rest = iter(stored)
    entries = [refused.get(at) or next(rest) for at in range(len(stored) + len(refused))]
    failed = sum("ErrorCode" in entry for entry in entries)
    return msgspec.json.encode({"FailedRecordCount": failed, "Records": entries})


class _GoneClient:
    """A client that is gone already."""

    closed = True
    full = False

    def send(self, data: bytes) -> None:
        """Drop the data: the client is gone."""

    async def drain(self) -> None:
        """Return at once: there is nothing to wait for."""

    def on_close(self, callback: Any) -> None:
        """Call it at once: the client is gone."""
        callback()

    def break_off(self, ending: AfterAnswer) -> None:
        """Do nothing: the client is gone."""


_NOWHERE = _GoneClient()
