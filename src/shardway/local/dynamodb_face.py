"""DynamoDB as it looks from outside: HTTP requests become calls of a region's model, whose answers go back."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

from shardway.local.answers import cors_lines
from shardway.local.dynamodb import DynamoError
from shardway.local.http_messages import Answer, Request

if TYPE_CHECKING:
    from shardway.local.answers import Answers
    from shardway.local.counters import Count, Counters
    from shardway.local.regions import Regions


class DynamoFace:
    """Answers DynamoDB's requests, each from the model of the region that it is signed for."""

    def __init__(self, regions: Regions, answers: Answers, counters: Counters) -> None:
        self._regions = regions
        self._answers = answers
        self._counters = counters

    def counted(self, request: Request) -> Answer:
        """Answer a request, and count it."""
        operation = self._operation(request)
        count: Count = self._counters.of(operation, request.headers.get(b"user-agent", b""))
        count.calls += 1
        answer, is_done = self._answer(operation, request)
        count.errors += not is_done
        count.response_bytes += len(answer.body)
        return answer

    def answer(self, request: Request) -> Answer:
        """Answer a request that is counted already."""
        return self._answer(self._operation(request), request)[0]

    def _operation(self, request: Request) -> str:
        target = request.headers.get(b"x-amz-target", b"")
        prefix, _, name = target.partition(b".")
        if prefix == b"DynamoDB_20120810":
            return name.decode("latin-1")
        return target.decode("latin-1")  # of DynamoDB Streams: no operation has this name

    def _answer(self, operation: str, request: Request) -> tuple[Answer, bool]:
        model = self._regions.of(request).dynamodb
        status = 200
        try:
            body = model.handle(operation, request.body)
        except DynamoError as fault:
            status, body = 400, fault.body()
        lines = b"%bContent-Type: application/x-amz-json-1.0\r\nx-amz-crc32: %d\r\n" % (
            cors_lines(request),
            zlib.crc32(body),
        )
        return self._answers.raw(status, body, lines), status == 200
