"""Calls to DynamoDB, CloudWatch and STS are counted, spoilt as ordered, and answered here or forwarded."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING
from xml.sax.saxutils import escape

import msgspec

from shardway.local.faults import Facts, Fault
from shardway.local.faulty_kinesis import DONE_FIRST, spoilt
from shardway.local.http_messages import Answer, Request, tag_of
from shardway.local.neighbours import MissingError, UnreachableError, operation_of

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from shardway.local.answers import Answers
    from shardway.local.counters import Counters
    from shardway.local.dynamodb_face import DynamoFace
    from shardway.local.faults import FaultPlan
    from shardway.local.neighbours import Neighbours


_THROTTLE_CODES = {"dynamodb": "ProvisionedThroughputExceededException"}
_FAILURE_CODES = {"dynamodb": "InternalServerError", "cloudwatch": "InternalServiceError"}
_NAMESPACE = {"dynamodb": "com.amazonaws.dynamodb.v20120810#"}


class NeighbourFace:
    """Answers the calls that are not for Kinesis."""

    def __init__(
        self,
        neighbours: Neighbours,
        answers: Answers,
        plan: FaultPlan,
        counters: Counters,
        dynamodb: DynamoFace | None,
    ) -> None:
        """``dynamodb`` answers for DynamoDB; None: another endpoint does."""
        self._neighbours = neighbours
        self._dynamodb = dynamodb
        self._answers = answers
        self._plan = plan
        self._counters = counters

    def __call__(self, service: str, request: Request) -> Answer | Awaitable[Answer]:
        """Answer one call, faults included."""
        if self._dynamodb is not None and service == "dynamodb" and not self._plan.active:
            return self._dynamodb.counted(request)
        return self._answer(service, request)

    async def _answer(self, service: str, request: Request) -> Answer:
        operation = operation_of(request)
        user_agent = request.headers.get(b"user-agent", b"")
        count = self._counters.of(operation, user_agent)
        count.calls += 1
        drawn = self._plan.draw(Facts(operation, tag_of(user_agent))) if self._plan.active else None
        if drawn is not None and drawn.delay_s:
            await asyncio.sleep(drawn.delay_s)
        fault = None if drawn is None or drawn.order is None else drawn.order.fault
        if fault is not None:
            count.errors += 1
            return await self._spoil(service, request, fault)
        answer = await self._forward(service, request)
        count.errors += not answer.head.startswith(b"HTTP/1.1 2")
        count.response_bytes += len(answer.body)
        return answer

    async def _forward(self, service: str, request: Request) -> Answer:
        if self._dynamodb is not None and service == "dynamodb":
            return self._dynamodb.answer(request)
        try:
            return await self._neighbours.forward(service, request)
        except MissingError as error:
            # 400: an SDK repeats a call that a 503 answered, again and again.
            return self._error(service, request, "MissingDependency", str(error), 400)
        except UnreachableError as error:
            return self._error(service, request, "ServiceUnavailable", str(error), 503)

    async def _spoil(self, service: str, request: Request, fault: Fault) -> Answer:
        done = None
        if fault.applied or fault.how in DONE_FIRST:
            done = await self._forward(service, request)
        answer = spoilt(fault, done)
        if answer is not None:
            return answer
        if fault.how == "throttle":
            code, text, status = _THROTTLE_CODES.get(service, "Throttling"), "Rate exceeded", 400
        elif fault.how == "access_denied":
            code, text, status = "AccessDeniedException", "User is not authorized to perform this action", 400
        elif fault.how == "expired_token":
            code, text, status = "ExpiredTokenException", "The security token included is expired", 400
        elif fault.how == "error":
            code, text, status = "", "An ordered fault", fault.status
        else:
            code, text, status = _FAILURE_CODES.get(service, "InternalFailure"), "The service has failed", 500
        return self._error(service, request, fault.code or code, fault.message or text, status)

    def _error(self, service: str, request: Request, code: str, message: str, status: int) -> Answer:
        """Return an error in the protocol of the request: JSON, CBOR or query (XML)."""
        if b"x-amz-target" in request.headers:
            body = msgspec.json.encode({"__type": _NAMESPACE.get(service, "") + code, "message": message})
            media = request.headers.get(b"content-type", b"application/x-amz-json-1.0")
            return self._answers.raw(status, body, b"Content-Type: %b\r\n" % media)
        if b"smithy-protocol" in request.headers:
            from shardway.local.cbor import encode

            lines = b"Content-Type: application/cbor\r\nsmithy-protocol: rpc-v2-cbor\r\n"
            return self._answers.raw(status, encode({"__type": code, "message": message}), lines)
        xml = (
            f"<ErrorResponse><Error><Type>{'Sender' if status < 500 else 'Receiver'}</Type>"
            f"<Code>{escape(code)}</Code><Message>{escape(message)}</Message></Error></ErrorResponse>"
        )
        return self._answers.raw(status, xml.encode(), b"Content-Type: text/xml\r\n")
