"""Spans of what producers and consumers do, by OpenTelemetry's API, and the contexts that records carry.

========  ========  ==================================  ==================================================
span      kind      from                                until
========  ========  ==================================  ==================================================
send      PRODUCER  a PutRecords request is sent        its answer
receive   CLIENT    GetRecords is asked for a page      the page, if it has records
process   CONSUMER  a ``with`` block is entered, or a   the block is left, or the handler has returned
                    handler called
settle    CLIENT    that moment                         the records are settled in this process
========  ========  ==================================  ==================================================

A record's context is what was current when it was put. It travels in the tags of a KPL aggregate, which change no
payload and which the KCL passes over; in a JSON body only where the program asks for that. There is no standard for
Kinesis: what Datadog's libraries and OpenTelemetry's for JavaScript write into JSON bodies is read, too. Names
and kinds are those of OpenTelemetry's conventions for messaging, which are still in development.
"""

from __future__ import annotations

import functools
import logging
import time
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import msgspec

from penstock.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from penstock.core.aggregation.reader import Tags
    from penstock.model import Record

F = TypeVar("F", bound="Callable[..., Any]")  # a method that keeps its type

log = logging.getLogger("penstock.telemetry")

SYSTEM = "aws.kinesis"
TRACEPARENT = "traceparent"
DATADOG = "_datadog"
LINKS_MAX = 128
"""OpenTelemetry's SDK keeps no more links of a span, by default."""
JSON_BYTES_MAX = 1024 * 1024
"""A larger record is not looked into."""
NANOSECONDS = 1_000_000_000
PARTITION = "messaging.destination.partition.id"

_MEMBERS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_NAMES = (f'"{TRACEPARENT}"'.encode(), f'"{DATADOG}"'.encode())


class _Operation(NamedTuple):
    """What the conventions say of one kind of span."""

    name: str
    type: str
    kind: str


SEND = _Operation("PutRecords", "send", "PRODUCER")
RECEIVE = _Operation("GetRecords", "receive", "CLIENT")
PROCESS = _Operation("process", "process", "CONSUMER")
SETTLE = _Operation("settle", "settle", "CLIENT")


class _Carriers(msgspec.Struct):
    """The members of a JSON body in which contexts stand."""

    traceparent: Any = None
    datadog: Any = msgspec.field(name=DATADOG, default=None)


_CARRIERS = msgspec.json.Decoder(_Carriers)


def _guarded(default: Any) -> Callable[[F], F]:
    """Spans never end the work: what the method raises is told by the log, and it returns ``default``."""

    def around(method: F) -> F:
        @functools.wraps(method)
        def guarded(self: Any, *given: Any) -> Any:
            try:
                return method(self, *given)
            except Exception as error:
                log.error("tracing: %s raised %s; the work goes on without it", method.__name__, type(error).__name__)
                return default

        return guarded  # type: ignore[return-value]

    return around


class OpenTelemetryTracing:
    """Makes spans by OpenTelemetry's API (the extra ``opentelemetry``) for a program that has set up its SDK::

        Producer("orders", options=ProducerOptions(aggregation=True), tracing=OpenTelemetryTracing())
        Consumer("orders", application="billing", tracing=OpenTelemetryTracing())

    ``json_members``: True: a producer writes the member ``traceparent`` into each record that is a JSON object and has
    none, and so changes the data that is put. ``links_max``: the most links of a span; contexts beyond that are left
    out. Raises OptionError without the package.
    """

    def __init__(self, *, tracer_provider: Any = None, json_members: bool = False, links_max: int = LINKS_MAX) -> None:
        try:
            import opentelemetry.context
            import opentelemetry.trace
            from opentelemetry.trace.propagation import tracecontext
        except ImportError as error:
            raise OptionError(
                "OpenTelemetryTracing needs opentelemetry-api: pip install 'penstock[opentelemetry]'"
            ) from error
        if links_max < 0:
            raise OptionError(f"links_max must be at least 0, not {links_max}")
        self._trace: Any = opentelemetry.trace
        self._context: Any = opentelemetry.context
        self._propagator: Any = tracecontext.TraceContextTextMapPropagator()
        self._tracer = (tracer_provider or opentelemetry.trace).get_tracer("penstock")
        self._json_members = json_members
        self._links_max = links_max
        self._application: dict[str, str] = {}

    def for_application(self, application: str) -> OpenTelemetryTracing:
        """The same, for a consumer of this application: its spans name it."""
        bound = object.__new__(type(self))
        bound.__dict__.update(self.__dict__)
        bound._application = {"messaging.consumer.group.name": application}
        return bound

    # --- what a producer asks for ---------------------------------------------------------------

    @_guarded(())
    def context_tags(self) -> Tags:
        """See `penstock.ports.Tracer`."""
        carrier: dict[str, str] = {}
        self._propagator.inject(carrier)
        return tuple(carrier.items())

    def data_with_context(self, data: bytes) -> bytes:
        """See `penstock.ports.Tracer`."""
        if not self._json_members or not data.lstrip().startswith(b"{"):
            return data
        context = dict(self.context_tags()).get(TRACEPARENT)
        if context is None:
            return data
        try:
            members = _MEMBERS.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return data  # it only looks like JSON
        if TRACEPARENT in members:
            return data
        before, _, rest = data.partition(b"{")
        member = f'"{TRACEPARENT}":"{context}"'.encode()
        return b"".join((before, b"{", member, b"," if members else b"", rest))

    def sending(self, stream: str, records: int, payload_bytes: int, contexts: Iterable[Tags]) -> _Span:
        """See `penstock.ports.Tracer`."""
        found = list(contexts)
        # A task is begun with the context of whichever caller put last: the request is not that caller's alone.
        parent = self._extracted(found[0]) if len(found) == 1 else self._context.Context()
        given = {"messaging.batch.message_count": records, "messaging.message.body.size": payload_bytes}
        return _Span(self, self._begun(SEND, stream, given, parent, found))

    # --- what a consumer asks for ---------------------------------------------------------------

    def received(self, stream: str, shard_id: str, records: int, took_s: float) -> None:
        """See `penstock.ports.Tracer`."""
        given = {PARTITION: shard_id, "messaging.batch.message_count": records}
        begun_ns = time.time_ns() - int(took_s * NANOSECONDS)
        self.ended(self._begun(RECEIVE, stream, given, self._context.Context(), (), begun_ns), None)

    def processing(self, stream: str, shard_id: str, records: Sequence[Record]) -> _BlockSpan:
        """See `penstock.ports.Tracer`."""
        given = {PARTITION: shard_id, "messaging.batch.message_count": len(records)}
        if len(records) == 1:
            one = records[0]
            given = {PARTITION: shard_id, "messaging.message.id": f"{one.sequence_number}:{one.sub_sequence_number}"}
        return _BlockSpan(self, self._begun(PROCESS, stream, given, None, self._contexts_of(records)), stream, shard_id)

    def settling(self, stream: str, shard_id: str, block: Any) -> Any:
        """The block of this span is left, and its records are settled."""
        return self._begun(SETTLE, stream, {PARTITION: shard_id}, self._inside(block), ())

    @_guarded(())
    def _contexts_of(self, records: Sequence[Record]) -> Sequence[Tags]:
        """The contexts of these records, each once, as many as a span has links for."""
        found: dict[Tags, None] = {}
        for record in records:
            if len(found) >= self._links_max:
                break
            if context := carried_by(record):
                found[context] = None
        return tuple(found)

    # --- spans ----------------------------------------------------------------------------------

    @_guarded(None)
    def _begun(
        self,
        operation: _Operation,
        stream: str,
        given: dict[str, Any],
        parent: Any,
        contexts: Sequence[Tags],
        begun_ns: int | None = None,
    ) -> Any:
        """A span that has begun. ``parent``: a context; None: the current one."""
        links = []
        for tags in contexts[: self._links_max]:
            context = self._trace.get_current_span(self._extracted(tags)).get_span_context()
            if context.is_valid:
                links.append(self._trace.Link(context))
        attributes = {
            "messaging.system": SYSTEM,
            "messaging.operation.name": operation.name,
            "messaging.operation.type": operation.type,
            "messaging.destination.name": stream_name(stream),
            **self._application,
            **given,
        }
        return self._tracer.start_span(
            f"{operation.name} {stream_name(stream)}",
            context=parent,
            kind=self._trace.SpanKind[operation.kind],
            attributes=attributes,
            links=links,
            start_time=begun_ns,
        )

    def _extracted(self, tags: Tags) -> Any:
        return self._propagator.extract(dict(tags), context=self._context.Context())

    @_guarded(None)
    def attached(self, span: Any) -> Any:
        """Make a span the current one. The token is for `detached`."""
        return None if span is None else self._context.attach(self._trace.set_span_in_context(span))

    @_guarded(None)
    def detached(self, token: Any) -> None:
        """The span that was current before is so again."""
        if token is not None:
            self._context.detach(token)

    @_guarded(None)
    def ended(self, span: Any, error: str | None) -> None:
        """The span is over; ``error``: the class of what failed. Its message may hold what a record holds."""
        if span is None:
            return
        if error is not None:
            span.set_attribute("error.type", error)
            span.set_status(self._trace.Status(self._trace.StatusCode.ERROR))
        span.end()

    def _inside(self, span: Any) -> Any:
        """A context in which this span is the parent; None: the current one."""
        return None if span is None else self._trace.set_span_in_context(span, self._context.Context())


class _Span:
    """The span of a request."""

    __slots__ = ("_span", "_tracing")

    def __init__(self, tracing: OpenTelemetryTracing, span: Any) -> None:
        self._tracing, self._span = tracing, span

    def sent(self, error: str | None) -> None:
        """See `penstock.ports.RequestSpan`."""
        self._tracing.ended(self._span, error)


class _BlockSpan:
    """The span of a block that processes records, and that of their settling behind it."""

    __slots__ = ("_place", "_settle", "_span", "_token", "_tracing")

    def __init__(self, tracing: OpenTelemetryTracing, span: Any, stream: str, shard_id: str) -> None:
        self._tracing, self._span = tracing, span
        self._place = stream, shard_id
        self._settle: Any = None
        self._token = tracing.attached(span)

    def processed(self, error: BaseException | None) -> None:
        """See `penstock.ports.BatchSpan`."""
        self._tracing.detached(self._token)
        self._tracing.ended(self._span, None if error is None else type(error).__qualname__)
        self._settle = self._tracing.settling(*self._place, self._span)

    def settled(self) -> None:
        """See `penstock.ports.BatchSpan`."""
        self._tracing.ended(self._settle, None)


# --- the contexts that records carry --------------------------------------------------------------


def carried_by(record: Record) -> Tags:
    """The context that a record carries, as the headers of W3C's Trace Context; nothing where it carries none."""
    for key, _ in record.tags:
        if key == TRACEPARENT:
            return tuple((key, value) for key, value in record.tags if key in ("traceparent", "tracestate"))
    data = record.data
    if len(data) > JSON_BYTES_MAX or not any(name in data for name in _NAMES):
        return ()
    try:
        found = _CARRIERS.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return ()
    if isinstance(found.traceparent, str):
        return ((TRACEPARENT, found.traceparent),)
    return _of_datadog(found.datadog) if isinstance(found.datadog, dict) else ()


def _of_datadog(members: dict[str, Any]) -> Tags:
    """What Datadog's libraries write: W3C's header, or their own two numbers of 64 bits in decimal, with the upper half
    of the trace's id beside them in hexadecimal.
    """
    if isinstance(given := members.get(TRACEPARENT), str):
        return ((TRACEPARENT, given),)
    try:
        trace_id, parent_id = int(members["x-datadog-trace-id"]), int(members["x-datadog-parent-id"])
        tags = dict(pair.split("=", 1) for pair in str(members.get("x-datadog-tags", "")).split(",") if "=" in pair)
        upper = int(tags.get("_dd.p.tid", "0"), 16)
        is_kept = int(members.get("x-datadog-sampling-priority", 1)) > 0
    except (KeyError, TypeError, ValueError):
        return ()
    if not (0 <= trace_id < 1 << 64 and 0 < parent_id < 1 << 64 and 0 <= upper < 1 << 64):
        return ()
    return ((TRACEPARENT, f"00-{upper:016x}{trace_id:016x}-{parent_id:016x}-{int(is_kept):02x}"),)


def stream_name(stream: str) -> str:
    """The name of a stream that was given as name or ARN."""
    return stream.rpartition("/")[2]
