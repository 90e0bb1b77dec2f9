"""The sender of requests: each has a task of its own, which gives the batcher its answer or its failure."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from shardway.core.producer.outcome import THROTTLED
from shardway.core.producer.request import Failure
from shardway.errors import (
    AccessDeniedError,
    CredentialsError,
    InvalidArgumentError,
    InvalidRecordError,
    NotFoundError,
    OptionError,
    ServiceError,
    ShardwayError,
    ThrottledError,
    TransportError,
    UnavailableError,
)
from shardway.tasks import spawn

if TYPE_CHECKING:
    from shardway.core.producer.request import Request
    from shardway.model import Tags
    from shardway.runtime.producer.driver import BatcherDriver
    from shardway.runtime.producer.reporter import Reporter
    from shardway.runtime.producer.send_loop import SendLoop
    from shardway.runtime.producer.spec import ProducerSpec


class RequestSender:
    """Sends requests side by side."""

    def __init__(self, spec: ProducerSpec, driver: BatcherDriver, reporter: Reporter, send_loop: SendLoop) -> None:
        self._spec = spec
        self._driver = driver
        self._batcher = driver.batcher
        self._reporter = reporter
        self._send_loop = send_loop

    def begin(self, request: Request, loop: asyncio.AbstractEventLoop) -> None:
        """Send a request in a task of its own."""
        task = spawn(self._send(request), self._reporter.report_fault, loop=loop)
        self._driver.tasks[request] = task
        task.add_done_callback(lambda _: self._end(request))

    async def _send(self, request: Request) -> None:
        began_s = time.monotonic()
        driver, reporter = self._driver, self._reporter
        reporter.report_buffering(request, began_s)
        error_code: str | None = None
        refused = failed = 0
        took_s: float | None = None
        tracer = self._spec.tracer
        span = None if tracer is None else tracer.sending(*self._trace_fields(request))
        try:
            async with asyncio.timeout(self._spec.options.request_timeout_s):
                results = await self._spec.sink.put(request.entries)
            if len(results) != len(request.entries):
                raise TransportError(f"{len(results)} results came for {len(request.entries)} entries")
        except (ShardwayError, TimeoutError) as error:
            failure, error_code = classify(error)
            self._send_loop.listing.note_place(error)
            with driver.step():
                self._batcher.handle_failure(request, failure, error_code, time.monotonic())
            driver.collect()
        except BaseException as error:
            # There is a fault in the sink, a signal handler raised, or a program cancels all tasks that it finds: the
            # records must not hang because of it.
            error_code = type(error).__name__
            with driver.step():
                self._batcher.handle_failure(request, Failure.UNKNOWN, error_code, time.monotonic())
            driver.collect()
            raise
        else:
            took_s = time.monotonic() - began_s
            codes = [result.error_code for result in results if result.error_code]
            refused = codes.count(THROTTLED)
            failed = len(codes) - refused
            with driver.step():
                self._batcher.handle_answer(request, results, time.monotonic())
            driver.collect()
            if reporter.has_listener:
                reporter.report_pace(request)
            reporter.report_aggregation(is_aggregating=self._batcher.builder.aggregating)
        finally:
            if span is not None:
                span.sent(error_code)
        if took_s is None:
            took_s = time.monotonic() - began_s
        in_flight = len(self._batcher.in_flight)
        reporter.report_request(request, took_s, error_code, refused=refused, failed=failed, in_flight=in_flight)
        self._send_loop.pump()

    def _trace_fields(self, request: Request) -> tuple[str, int, int, set[Tags]]:
        contexts = {run.chunk.tags for load in request.loads for run in load.runs if run.chunk.tags}
        return self._spec.stream, request.user_records, request.payload_bytes, contexts

    def _end(self, request: Request) -> None:
        """Note that the task of a request has ended."""
        self._driver.tasks.pop(request, None)
        # The task was broken off before it could give the batcher an answer or a failure.
        if request in self._batcher.in_flight and not self._send_loop.has_ended:
            self._batcher.broken = True
            self._send_loop.pump()


def classify(error: Exception) -> tuple[Failure, str]:
    """Return what a failed request means, and the reason in a word."""
    reason = error.code if isinstance(error, ServiceError) else type(error).__name__
    if isinstance(error, ThrottledError):
        return Failure.THROTTLED, reason
    if isinstance(error, UnavailableError | TimeoutError):
        return Failure.UNKNOWN, reason
    if isinstance(error, TransportError):
        return Failure.UNKNOWN if error.sent else Failure.NOT_SENT, reason
    if isinstance(error, InvalidArgumentError | InvalidRecordError):
        return Failure.INVALID, reason
    if isinstance(error, AccessDeniedError | NotFoundError | CredentialsError | OptionError):
        return Failure.DENIED, reason
    return Failure.NOT_SENT if isinstance(error, ServiceError) else Failure.UNKNOWN, reason
