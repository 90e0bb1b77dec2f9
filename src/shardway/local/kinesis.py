"""Kinesis as it looks from outside: HTTP requests become calls of the service model, whose answers go back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shardway.local.answers import AMZ_CBOR, AMZ_JSON, Answers, content_type, cors_lines
from shardway.local.gate import TARGET_PREFIX, Gate, looks_signed, operation_of
from shardway.local.http_messages import Answer, Request
from shardway.local.model import ModelError
from shardway.local.operations import OPERATIONS, SUBSCRIBE, Call

if TYPE_CHECKING:
    from shardway.local.counters import Count, Counters
    from shardway.local.event_pumps import Subscriptions
    from shardway.local.model import KinesisModel
    from shardway.local.signatures import Verifier


class KinesisFace:
    """Answers Kinesis requests from a service model."""

    def __init__(
        self,
        model: KinesisModel,
        answers: Answers,
        counters: Counters,
        subscriptions: Subscriptions,
        verifier: Verifier | None = None,
    ) -> None:
        self.model = model
        """The service model, which is replaced by an empty one when the service is reset."""
        self._answers = answers
        self._counters = counters
        self._subscriptions = subscriptions
        self._gate = Gate(answers, OPERATIONS, _decode_cbor, verifier)
        plain = OPERATIONS - {SUBSCRIBE} if verifier is None else frozenset[str]()
        self._usual_operations = {TARGET_PREFIX + name.encode(): name for name in plain}
        """The usual calls, by their target: a look at the headers is enough for them, without the gate."""

    def __call__(self, request: Request) -> Answer:
        """Answer one request; a subscription's answer is a stream."""
        headers = request.headers
        operation = self._usual_operations.get(headers.get(b"x-amz-target", b""))
        body = request.body
        if (
            operation is None
            or headers.get(b"content-type") != AMZ_JSON
            or not body
            or request.method != b"POST"
            or b"origin" in headers
            or not looks_signed(headers)
        ):
            return self._answer_closely(request)
        count = self._counters.of(operation, headers.get(b"user-agent", b""))
        count.calls += 1
        try:
            result = self.model.handle(operation, body)
        except ModelError as fault:
            count.errors += 1
            return self._answers.error(fault.code, fault.body(), fault.status)
        count.records += self.model.moved
        count.response_bytes += len(result)
        return self._answers.ok(result)

    def admit(self, request: Request) -> Call | Answer:
        """Check a request as the front end does. Return the call that it makes, or the answer that turns it away."""
        refusal = self._gate.refuse(request)
        if refusal is not None:
            return refusal
        operation = operation_of(request, OPERATIONS)
        assert operation is not None, "the gate lets only known operations pass"
        user_agent = request.headers.get(b"user-agent", b"")
        if content_type(request) != AMZ_CBOR:
            return Call(operation, request.body, False, cors_lines(request), user_agent)
        from shardway.local.cbor import request_to_json

        call = Call(operation, b"", True, cors_lines(request), user_agent)
        try:
            return call._replace(body=request_to_json(request.body))
        except ValueError:
            return self.error(call, ModelError("SerializationException"))

    def perform(self, call: Call) -> Answer:
        """Let the model do an admitted call, and count the call."""
        count = self.count(call)
        try:
            if call.operation == SUBSCRIBE:
                return self._subscriptions.answer(self.model.subscribe(call.body), call, count)
            result = self.model.handle(call.operation, call.body)
        except ModelError as fault:
            count.errors += 1
            return self.error(call, fault)
        return self.answered(call, result, count, self.model.moved)

    def count(self, call: Call) -> Count:
        """Count a call, and return the counts that its outcome is added to."""
        count = self._counters.of(call.operation, call.user_agent)
        count.calls += 1
        return count

    def spoilt(self, call: Call) -> None:
        """Count a call that was done, and whose answer does not arrive whole."""
        self._counters.of(call.operation, call.user_agent).errors += 1

    def answered(self, call: Call, result: bytes, count: Count, records: int) -> Answer:
        """Return the answer with this JSON, in the caller's own format. ``records``: how many the call moved."""
        count.records += records
        if call.cbor:
            from shardway.local.cbor import answer_to_cbor

            result = answer_to_cbor(result)
        count.response_bytes += len(result)
        return self._answers.ok(result, AMZ_CBOR if call.cbor else AMZ_JSON, call.cors)

    def refused(self, answer: Answer, request: Request) -> Answer:
        """Count a request that the front end turned away."""
        count = self._counters.of("refused", request.headers.get(b"user-agent", b""))
        count.calls += 1
        count.errors += 1
        return answer

    def error(self, call: Call, fault: ModelError) -> Answer:
        """Return the answer for an error, in the caller's own format."""
        body = fault.body()
        if call.cbor:
            from shardway.local.cbor import answer_to_cbor

            body = answer_to_cbor(body)
        return self._answers.error(fault.code, body, fault.status, AMZ_CBOR if call.cbor else AMZ_JSON, call.cors)

    def _answer_closely(self, request: Request) -> Answer:
        call = self.admit(request)
        return self.refused(call, request) if isinstance(call, Answer) else self.perform(call)


def _decode_cbor(body: bytes) -> object:
    from shardway.local.cbor import decode

    return decode(body)
