"""Make spans of what producers and consumers do, by OpenTelemetry's API, and read the contexts that records carry.

========  ========  ==================================  ==================================================
span      kind      from                                until
========  ========  ==================================  ==================================================
send      PRODUCER  a PutRecords request is sent        its answer
receive   CLIENT    GetRecords is asked for a page      the page, if it has records
process   CONSUMER  a ``with`` block is entered, or a   the block is left, or the handler has returned
                    handler called
settle    CLIENT    that moment                         the records are settled in this process
========  ========  ==================================  ==================================================

A record's context is what was current when it was put. The context travels in the tags of a KPL aggregate, which change
no payload and which the KCL passes over; a JSON body carries it only where the program asks for that. There is no
standard for Kinesis: what Datadog's libraries and OpenTelemetry's for JavaScript write into JSON bodies is read, too.
Names and kinds are those of OpenTelemetry's conventions for messaging, which are still in development.
"""

from __future__ import annotations

import functools
import logging
import time
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import msgspec

from shardway.errors import OptionError
from shardway.telemetry.trace_contexts import MEMBERS, TRACEPARENT, contexts_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from shardway.model import Record, Tags


F = TypeVar("F", bound="Callable[..., Any]")  # a method that keeps its type
log = logging.getLogger("shardway.telemetry")
SYSTEM = "aws.kinesis"
LINKS_MAX = 128
"""The links of a span: OpenTelemetry's SDK keeps no more by default."""
NANOSECONDS = 1_000_000_000
PARTITION = "messaging.destination.partition.id"


class _Operation(NamedTuple):
    """The names that the conventions give to one kind of span."""

    name: str
    type: str
    kind: str


SEND = _Operation("PutRecords", "send", "PRODUCER")
RECEIVE = _Operation("GetRecords", "receive", "CLIENT")
PROCESS = _Operation("process", "process", "CONSUMER")
SETTLE = _Operation("settle", "settle", "CLIENT")


def _guard(default: Any) -> Callable[[F], F]:
    """Return a decorator that keeps spans from ending the work: what the method raises is logged, and the method
    returns ``default``.
    """

    def decorate(method: F) -> F:
        @functools.wraps(method)
        def call_guarded(self: Any, *given: Any, **named: Any) -> Any:
            try:
                return method(self, *given, **named)
            except Exception as error:
                log.error("tracing: %s raised %s; the work goes on without it", method.__name__, type(error).__name__)
                return default

        return call_guarded  # type: ignore[return-value]

    return decorate


class OpenTelemetryTracing:
    """Makes spans by OpenTelemetry's API (the extra ``opentelemetry``) for a program that has set up its SDK::

        Producer("orders", options=ProducerOptions(aggregation=True), tracing=OpenTelemetryTracing())
        Consumer("orders", application="billing", tracing=OpenTelemetryTracing())

    With ``json_members`` a producer writes the member ``traceparent`` into each record that is a JSON object without
    this member, and so changes the data that is put. ``links_max``: the most links of a span; further contexts are left
    out. Raises OptionError without the package.
    """

    def __init__(self, *, tracer_provider: Any = None, json_members: bool = False, links_max: int = LINKS_MAX) -> None:
        if links_max < 0:
            raise OptionError(f"links_max must be at least 0, not {links_max}")
        self._spans = _Spans(tracer_provider, links_max)
        self._json_members = json_members
        self._links_max = links_max
        self._application: dict[str, str] = {}

    def for_application(self, application: str) -> OpenTelemetryTracing:
        """Return the tracing of a consumer of this application, whose spans name the application."""
        bound = object.__new__(type(self))
        bound.__dict__.update(self.__dict__)
        bound._application = {"messaging.consumer.group.name": application}
        return bound

    # --- what a producer asks for ---------------------------------------------------------------

    def context_tags(self) -> Tags:
        """Return the tags that carry the caller's context in an aggregate; none where no span is current."""
        return self._spans.injected()

    def data_with_context(self, data: bytes) -> bytes:
        """Return a record's data as it is to be put. With ``json_members`` it has the caller's context, where the data
        is a JSON object and a span is current.
        """
        if not self._json_members or not data.lstrip().startswith(b"{"):
            return data
        context = dict(self.context_tags()).get(TRACEPARENT)
        if context is None:
            return data
        try:
            members = MEMBERS.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return data  # the data only begins like JSON
        if TRACEPARENT in members:
            return data
        before, _, rest = data.partition(b"{")
        member = f'"{TRACEPARENT}":"{context}"'.encode()
        return b"".join((before, b"{", member, b"," if members else b"", rest))

    def sending(self, stream: str, records: int, payload_bytes: int, contexts: Iterable[Tags]) -> _RequestSpan:
        """Begin the span of a request that is sent now. ``contexts``: the contexts of its records, each once."""
        given = {"messaging.batch.message_count": records, "messaging.message.body.size": payload_bytes}
        return _RequestSpan(self._spans, self._spans.of_request(stream, given, list(contexts)))

    # --- what a consumer asks for ---------------------------------------------------------------

    def received(self, stream: str, shard_id: str, records: int, took_s: float) -> None:
        """Make the span of a page with records that came ``took_s`` seconds after the call for it."""
        given = {PARTITION: shard_id, "messaging.batch.message_count": records, **self._application}
        begun_ns = time.time_ns() - int(took_s * NANOSECONDS)
        self._spans.ended(self._spans.begun(RECEIVE, stream, given, begun_ns=begun_ns), None)

    def processing(self, stream: str, shard_id: str, records: Sequence[Record]) -> _BlockSpan:
        """Begin the span of a block that processes records, which is entered now."""
        given: dict[str, Any] = {PARTITION: shard_id, **self._application}
        if len(records) == 1:
            given["messaging.message.id"] = f"{records[0].sequence_number}:{records[0].sub_sequence_number}"
        else:
            given["messaging.batch.message_count"] = len(records)
        span = self._spans.begun(PROCESS, stream, given, contexts=contexts_of(records, self._links_max), inside=True)
        return _BlockSpan(self._spans, span, stream, {PARTITION: shard_id, **self._application})


class _Spans:
    """The calls to OpenTelemetry's API."""

    def __init__(self, tracer_provider: Any, links_max: int) -> None:
        try:
            import opentelemetry.context
            import opentelemetry.trace
            from opentelemetry.trace.propagation import tracecontext
        except ImportError as error:
            raise OptionError(
                "OpenTelemetryTracing needs opentelemetry-api: pip install 'shardway[opentelemetry]'"
            ) from error
        self._trace: Any = opentelemetry.trace
        self._context: Any = opentelemetry.context
        self._propagator: Any = tracecontext.TraceContextTextMapPropagator()
        self._tracer: Any = (tracer_provider or opentelemetry.trace).get_tracer("shardway")
        self._links_max = links_max

    @_guard(())
    def injected(self) -> Tags:
        """Return the current context as tags."""
        carrier: dict[str, str] = {}
        self._propagator.inject(carrier)
        return tuple(carrier.items())

    @_guard(None)
    def of_request(self, stream: str, given: dict[str, Any], contexts: Sequence[Tags]) -> Any:
        """Begin the span of a request. The context of the task that sends is not used: it is that of whichever caller
        put last.
        """
        parent = self._extract(contexts[0]) if len(contexts) == 1 else None
        return self.begun(SEND, stream, given, parent=parent, contexts=contexts)

    @_guard(None)
    def begun(
        self,
        operation: _Operation,
        stream: str,
        given: dict[str, Any],
        *,
        parent: Any = None,
        contexts: Sequence[Tags] = (),
        begun_ns: int | None = None,
        inside: bool = False,
    ) -> Any:
        """Begin a span. ``inside``: it is a child of the current span; else it is a child of ``parent``, or of none."""
        links = []
        for tags in contexts[: self._links_max]:
            context = self._trace.get_current_span(self._extract(tags)).get_span_context()
            if context.is_valid:
                links.append(self._trace.Link(context))
        name = stream.rpartition("/")[2]  # a stream may be given by its ARN
        return self._tracer.start_span(
            f"{operation.name} {name}",
            context=None if inside else parent or self._context.Context(),
            kind=self._trace.SpanKind[operation.kind],
            attributes={
                "messaging.system": SYSTEM,
                "messaging.operation.name": operation.name,
                "messaging.operation.type": operation.type,
                "messaging.destination.name": name,
                **given,
            },
            links=links,
            start_time=begun_ns,
        )

    def _extract(self, tags: Tags) -> Any:
        return self._propagator.extract(dict(tags), context=self._context.Context())

    @_guard(None)
    def attached(self, span: Any) -> Any:
        """Make a span the current one, and return the token for `detached`."""
        return None if span is None else self._context.attach(self._trace.set_span_in_context(span))

    @_guard(None)
    def detached(self, token: Any) -> None:
        """Make the span current again that was so before `attached` returned this token."""
        if token is not None:
            self._context.detach(token)

    @_guard(None)
    def ended(self, span: Any, error: str | None) -> None:
        """End a span. ``error``: the class or code of what failed, and no message, which may hold a record's
        content.
        """
        if span is None:
            return
        if error is not None:
            span.set_attribute("error.type", error)
            span.set_status(self._trace.Status(self._trace.StatusCode.ERROR))
        span.end()

    @_guard(None)
    def settling(self, stream: str, given: dict[str, Any], block: Any) -> Any:
        """Begin the span of the settling that follows a block, as a child of the block's span."""
        if block is None:
            return None
        parent = self._trace.set_span_in_context(block, self._context.Context())
        return self.begun(SETTLE, stream, given, parent=parent)


class _RequestSpan:
    """The span of a request."""

    __slots__ = ("_span", "_spans")

    def __init__(self, spans: _Spans, span: Any) -> None:
        self._spans, self._span = spans, span

    def sent(self, error: str | None) -> None:
        """See `shardway.ports.RequestSpan`."""
        self._spans.ended(self._span, error)


class _BlockSpan:
    """The span of a block that processes records, and the span of the settling that follows."""

    __slots__ = ("_given", "_settle", "_span", "_spans", "_stream", "_token")

    def __init__(self, spans: _Spans, span: Any, stream: str, given: dict[str, Any]) -> None:
        self._spans, self._span = spans, span
        self._stream, self._given = stream, given
        self._settle: Any = None
        self._token = spans.attached(span)

    def processed(self, error: BaseException | None) -> None:
        """See `shardway.ports.BatchSpan`."""
        self._spans.detached(self._token)
        self._spans.ended(self._span, None if error is None else type(error).__qualname__)
        self._settle = self._spans.settling(self._stream, self._given, self._span)

    def settled(self) -> None:
        """See `shardway.ports.BatchSpan`."""
        self._spans.ended(self._settle, None)
