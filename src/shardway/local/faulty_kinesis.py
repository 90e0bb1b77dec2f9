"""Serve Kinesis with the faults that are ordered: calls are refused, held up, cut off or answered wrongly."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec

from shardway.local.event_pumps import EventFault
from shardway.local.fault_targets import shard_of_entry, target_of
from shardway.local.faults import SUBSCRIPTION_EVENT, Facts
from shardway.local.http_messages import AfterAnswer, Answer, Request, tag_of
from shardway.local.model import ModelError
from shardway.local.operations import SUBSCRIBE

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from shardway.local.fault_targets import Target
    from shardway.local.faults import Fault, FaultPlan, OrderedFault
    from shardway.local.kinesis import KinesisFace
    from shardway.local.operations import Call


_DATA_PLANE = frozenset(("GetRecords", "PutRecord", "PutRecords", "GetShardIterator", SUBSCRIBE))
_THROTTLE_CODE = "ProvisionedThroughputExceededException"


def refusal(fault: Fault, operation: str, target: Target) -> ModelError:
    """Return the error that a fault makes of a call, worded as AWS words it."""
    where = f"shard {min(target.shards, default='shardId-000000000000')} in stream {target.stream or '(none)'}"
    if fault.how == "throttle":
        data_plane = operation in _DATA_PLANE or operation == SUBSCRIPTION_EVENT
        code = _THROTTLE_CODE if data_plane else "LimitExceededException"
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
                await answer.stream(_NO_CLIENT)  # ends at once, and lets go of the subscription
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
        return self._face.answered(call, _merge(stored, refused), count, len(stored))


def _refused_entry(fault: Fault, shard: str, stream: str, account_id: str) -> dict[str, str]:
    code = fault.code or _THROTTLE_CODE
    text = f"Rate exceeded for shard {shard} in stream {stream} under account {account_id}."
    if code == "InternalFailure":
        text = "Internal Service Failure"
    return {"ErrorCode": code, "ErrorMessage": fault.message or text}


def _merge(stored: list[Any], refused: dict[int, dict[str, str]]) -> bytes:
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


_NO_CLIENT = _GoneClient()
