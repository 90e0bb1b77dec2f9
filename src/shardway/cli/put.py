"""``shardway put`` puts lines of a file or of standard input into a stream."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
import random
import stat
import time
from collections import deque
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import msgspec
import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn

from shardway.cli.output import OutputWhole, ResultShape, of_bytes, warn
from shardway.cli.producing import (
    Aggregation,
    Batcher,
    EndpointUrl,
    Flush,
    OrderedByKey,
    Profile,
    RecordTtl,
    Region,
    Report,
    Run,
    Stream,
    finish,
)
from shardway.errors import OptionError, ShardwayError
from shardway.model import HASH_KEY_MAX, OutRecord
from shardway.options import ProducerOptions
from shardway.tasks import drop, logged, spawn, thread

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator

    from shardway.cli.producing import Batch
    from shardway.runtime.producer.metrics import ProducerSnapshot
    from shardway.runtime.producer.producer import Producer

# --- lines ----------------------------------------------------------------------------------------
# Lines of a file or a pipe become records to put. They are read as they come, in bounded memory.

READ_BYTES = 256 * 1024
"""The bytes that are read at a time; a pipe gives what it has."""
LINE_BYTES_MAX = 16 * 1024 * 1024
"""The longest line that is no bad line. A record is up to 10 MiB, and its JSON may be longer."""
RECORD_BYTES_MAX = 10 * 1024 * 1024
"""The bytes of data and partition key together (AWS API reference, PutRecordsRequestEntry)."""
PARTITION_KEY_CHARACTERS_MAX = 256


class BadLineError(ShardwayError):
    """A line that cannot be made a record. The message does not show the line."""


class Form(msgspec.Struct, frozen=True, kw_only=True):
    """How a line becomes a record. Fields are paths with dots: ``order.customer``.

    Raises OptionError when the choices contradict each other.
    """

    records: bool = False
    """True: each line is a record as ``shardway records`` writes it: its own key, hash key and data, byte for byte."""
    jsonl: bool = False
    """True: each line is a JSON value, and blank lines are passed over. False: each line is data, an empty one, too."""
    key_text: str | None = None
    """The partition key of all records; without it and ``key`` each record has a random one."""
    key: str | None = None
    explicit_hash_key: str | None = None
    data: str | None = None
    """The field that is the data; None: the line itself is the data."""

    def __post_init__(self) -> None:
        fields = {"--key": self.key, "--explicit-hash-key": self.explicit_hash_key, "--data": self.data}
        faults = [
            f"{name} names a field of JSON, for --format jsonl"
            if self.records
            else f"{name} names a field of JSON: add --format jsonl"
            for name, field in fields.items()
            if field is not None and not self.jsonl
        ]
        faults += [
            f"{name}: write a field, or a path as in order.id"
            for name, field in fields.items()
            if field is not None and not all(field.split("."))
        ]
        if self.records and self.key_text is not None:
            faults.append("--key-text: lines of --format records have keys of their own")
        if self.key is not None and self.key_text is not None:
            faults.append("--key and --key-text contradict each other")
        if self.key_text is not None and not 1 <= len(self.key_text) <= PARTITION_KEY_CHARACTERS_MAX:
            faults.append(f"--key-text: a partition key has 1 to {PARTITION_KEY_CHARACTERS_MAX} characters")
        if faults:
            raise OptionError(faults)


def record_maker(form: Form, rng: random.Random) -> Callable[[bytes], OutRecord | None]:
    """Return a function from a line (without its end) to a record, or to None for a line to pass over.

    The function raises `BadLineError`. ``rng`` makes the random keys.
    """

    def random_key() -> str:
        return f"{rng.getrandbits(32):08x}"

    def from_text(line: bytes) -> OutRecord:
        return _checked(OutRecord(line, form.key_text or random_key()))

    def from_json(line: bytes) -> OutRecord | None:
        if not line or line.isspace():
            return None
        value = _decode(line)
        key = form.key_text or (_key(_field(value, form.key)) if form.key else random_key())
        hash_key = _hash_key(_field(value, form.explicit_hash_key)) if form.explicit_hash_key else None
        data = _data(_field(value, form.data)) if form.data else line
        return _checked(OutRecord(data, key, hash_key))

    if form.records:
        return _from_record
    return from_json if form.jsonl else from_text


def _from_record(line: bytes) -> OutRecord | None:
    """Return the record of a line that ``shardway records`` has written; None for a blank line."""
    if not line or line.isspace():
        return None
    value = _decode(line)
    if not isinstance(value, dict):
        raise BadLineError("it is no object")
    key = _key(_field(value, "partition_key"))
    hash_key = _hash_key(_field(value, "explicit_hash_key")) if "explicit_hash_key" in value else None
    if ("data" in value) == ("data_base64" in value):
        raise BadLineError("it needs one of data and data_base64")
    name = "data" if "data" in value else "data_base64"
    if not isinstance(value[name], str):
        raise BadLineError(f"its field {name} is no text")
    if name == "data":
        return _checked(OutRecord(value[name].encode(), key, hash_key))
    try:
        return _checked(OutRecord(base64.b64decode(value[name], validate=True), key, hash_key))
    except ValueError:
        raise BadLineError("its field data_base64 is no base64") from None


class Line(NamedTuple):
    """One line: its number, counted from 1, and its bytes without the line feed; None when it is too long."""

    number: int
    text: bytes | None


class Lines:
    """Cuts chunks of bytes into lines. The last one may do without a line feed."""

    def __init__(self, line_bytes_max: int = LINE_BYTES_MAX) -> None:
        self.number = 0
        """The number of the last line that was returned."""
        self._max = line_bytes_max
        self._parts: list[bytes] = []
        self._bytes = 0

    def feed(self, chunk: bytes) -> list[Line]:
        """Return the lines that end in this chunk."""
        *ended, rest = chunk.split(b"\n")
        found = [self._end(part) for part in ended]
        self._keep(rest)
        return found

    def end(self) -> list[Line]:
        """Return what is left after the last line feed: a line, or nothing."""
        return [self._end(b"")] if self._bytes else []

    def _keep(self, part: bytes) -> None:
        self._bytes += len(part)
        if self._bytes > self._max:
            self._parts.clear()
        elif part:
            self._parts.append(part)

    def _end(self, part: bytes) -> Line:
        self._keep(part)
        text = b"".join(self._parts) if self._bytes <= self._max else None
        self._parts.clear()
        self._bytes = 0
        self.number += 1
        return Line(self.number, text)


async def read_chunks(descriptor: int) -> AsyncIterator[bytes]:
    """Yield what a file or pipe holds, in pieces of at most `READ_BYTES`, as it comes. Raises OSError."""
    while chunk := await _read(descriptor):
        yield chunk


async def _read(descriptor: int) -> bytes:
    """Call ``os.read`` in a thread of its own.

    The thread is a daemon: the process may end while the read still waits for a pipe or a terminal. The process would
    wait for the loop's own threads, and standard input's buffer would be locked.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[bytes] = loop.create_future()

    def settle(data: bytes, fault: BaseException | None) -> None:
        if done.cancelled():
            return
        if fault is None:
            done.set_result(data)
        else:
            done.set_exception(fault)

    def tell(data: bytes, fault: BaseException | None = None) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
            loop.call_soon_threadsafe(settle, data, fault)

    thread(lambda: tell(os.read(descriptor, READ_BYTES)), "shardway-input", lambda error: tell(b"", error))
    return await done


def _decode(line: bytes) -> Any:
    try:
        return msgspec.json.decode(line)
    except msgspec.DecodeError as fault:
        raise BadLineError(f"it is not JSON: {fault}") from None
    except UnicodeDecodeError as fault:
        raise BadLineError(f"it is not JSON: no UTF-8 at byte {fault.start} of a text") from None
    except RecursionError:
        raise BadLineError("it is not JSON that can be read: too many levels") from None


def _field(value: Any, path: str) -> tuple[str, Any]:
    for name in path.split("."):
        if not isinstance(value, dict) or name not in value:
            raise BadLineError(f"it has no field {path}")
        value = value[name]
    return path, value


def _key(field: tuple[str, Any]) -> str:
    path, value = field
    if value is None or isinstance(value, dict | list):
        kind = {type(None): "null", dict: "an object", list: "an array"}[type(value)]
        raise BadLineError(f"its field {path} is {kind}; a partition key is a text, a number or a boolean")
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _hash_key(field: tuple[str, Any]) -> int:
    path, value = field
    if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) <= len(str(HASH_KEY_MAX)):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= HASH_KEY_MAX:
        raise BadLineError(f"its field {path} is no hash key: a whole number from 0 to 2^128-1, also as text")
    return value


def _data(field: tuple[str, Any]) -> bytes:
    value = field[1]
    return value.encode() if isinstance(value, str) else msgspec.json.encode(value)


def _checked(record: OutRecord) -> OutRecord:
    if not 1 <= len(record.partition_key) <= PARTITION_KEY_CHARACTERS_MAX:
        raise BadLineError(
            f"its partition key has {len(record.partition_key)} characters, not 1 to {PARTITION_KEY_CHARACTERS_MAX}"
        )
    try:
        size = len(record.data) + len(record.partition_key.encode())
    except UnicodeEncodeError:
        raise BadLineError("its partition key is no valid Unicode") from None
    if size > RECORD_BYTES_MAX:
        raise BadLineError(f"it has {size} bytes with its partition key; a record has at most {RECORD_BYTES_MAX}")
    return record


# --- progress -------------------------------------------------------------------------------------
# A bar on a terminal shows how far ``shardway put`` is.

REFRESH_S = 0.25
RATE_OVER_S = 3.0


class Rate:
    """How fast a number grew lately, per second."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque()

    def note(self, now_s: float, value: int) -> float:
        """Note the number now, and return its rate over the last `RATE_OVER_S` seconds."""
        self._seen.append((now_s, value))
        while len(self._seen) > 2 and now_s - self._seen[0][0] > RATE_OVER_S:
            self._seen.popleft()
        passed_s = now_s - self._seen[0][0]
        return (value - self._seen[0][1]) / passed_s if passed_s > 0 else 0.0


def describe(snapshot: ProducerSnapshot, records_per_s: float) -> str:
    """Return the text beside the bar."""
    return (
        f"{snapshot.user_records_put:,} records  {of_bytes(snapshot.user_bytes_put)}  {records_per_s:,.0f}/s  "
        f"{snapshot.records_refused:,} refused  {snapshot.user_records_pending:,} under way"
    )


@contextlib.asynccontextmanager
async def progress(
    producer: Producer[Any], read_bytes: Callable[[], int], total_bytes: int | None, console: Console | None = None
) -> AsyncIterator[None]:
    """Show what is done until the block ends, if the console (standard error) is a terminal; with a bar, if the total
    is known.
    """
    console = console or Console(stderr=True)
    if not console.is_terminal:
        yield
        return
    bar = Progress(
        SpinnerColumn(), BarColumn(bar_width=24), TextColumn("{task.description}"), console=console, transient=True
    )
    with bar:
        task = bar.add_task("", total=total_bytes)
        rate = Rate()

        def show() -> None:
            snapshot = producer.metrics()
            text = describe(snapshot, rate.note(time.monotonic(), snapshot.user_records_put))
            bar.update(task, description=text, completed=read_bytes())

        async def follow() -> None:
            while True:
                show()
                await asyncio.sleep(REFRESH_S)

        following = spawn(follow(), logged("the progress is not shown any more"))
        try:
            yield
        finally:
            drop(following)
            show()


# --- the command ----------------------------------------------------------------------------------

BUFFER_BYTES_MAX = 16 * 1024 * 1024
"""The bytes that are read ahead of what is written. At a shard's 1 MiB/s this is well within the default time to live.
"""
BAD_LINES_SHOWN_MAX = 10


class Format(StrEnum):
    """What a line is."""

    lines = "lines"
    jsonl = "jsonl"
    records = "records"


File = Annotated[
    Path | None, typer.Argument(help="File to read; standard input without it, or with -.", metavar="FILE")
]
LineFormat = Annotated[
    Format,
    typer.Option(
        "--format",
        help="A line is data as it is, a JSON value with fields to choose from, or a record of shardway records.",
    ),
]
Key = Annotated[str | None, typer.Option(help="JSON field with the partition key.", metavar="FIELD")]
KeyText = Annotated[
    str | None,
    typer.Option(
        help="Partition key of all records. If no option names a key, each record gets a random one.", metavar="TEXT"
    ),
]
HashKey = Annotated[str | None, typer.Option(help="JSON field with the explicit hash key.", metavar="FIELD")]
Data = Annotated[
    str | None, typer.Option(help="JSON field with the data. Without it, the whole line is the data.", metavar="FIELD")
]
SkipBad = Annotated[
    bool, typer.Option("--skip-bad", help="Skip bad lines. Without it, the first bad line stops the command.")
]
KeepGoing = Annotated[
    bool,
    typer.Option(
        "--keep-going", help="Go on when a record could not be written. Without it, the command stops reading."
    ),
]


def command(
    stream: Stream,
    file: File = None,
    form: LineFormat = Format.lines,
    key: Key = None,
    key_text: KeyText = None,
    explicit_hash_key: HashKey = None,
    data: Data = None,
    skip_bad: SkipBad = False,
    keep_going: KeepGoing = False,
    aggregation: Aggregation = False,
    ordered_by_key: OrderedByKey = False,
    record_ttl: RecordTtl = 120.0,
    flush: Flush = 10.0,
    region: Region = None,
    endpoint_url: EndpointUrl = None,
    profile: Profile = None,
    output: OutputWhole = ResultShape.text,
) -> None:
    """Put each line of FILE or of standard input into STREAM as a record. Ends with status 0 if all were written."""
    source = LineSource(
        _form(form, key_text, key, explicit_hash_key, data),
        name="standard input" if file is None or str(file) == "-" else str(file),
        skip_bad=skip_bad,
    )
    options = ProducerOptions(
        aggregation=aggregation,
        ordered_by_key=ordered_by_key,
        record_ttl_s=record_ttl,
        buffer_bytes_max=BUFFER_BYTES_MAX,
    )
    run = Run(
        stream, options=options, region=region, endpoint_url=endpoint_url, profile=profile, stop_on_loss=not keep_going
    )
    with _opened(file) as descriptor:
        total_bytes = _size(descriptor)
        metrics = asyncio.run(
            run.deliver(
                source.batches(descriptor),
                flush_s=flush,
                watch=lambda producer: progress(producer, lambda: source.bytes_read, total_bytes),
            )
        )
    report = Report(
        stream=stream,
        account=run.account,
        metrics=metrics,
        what="lines",
        interrupted=run.stopping.signal,
        fault=source.fault,
        further={
            "lines_read": source.lines.number,
            "bad_lines_skipped": source.skipped,
            "input_complete": source.complete,
        },
    )
    finish(report, as_json=output is ResultShape.json)


def _form(form: Format, key_text: str | None, key: str | None, hash_key: str | None, data: str | None) -> Form:
    return Form(
        records=form is Format.records,
        jsonl=form is Format.jsonl,
        key_text=key_text,
        key=key,
        explicit_hash_key=hash_key,
        data=data,
    )


class LineSource:
    """Makes batches of records out of lines, as the lines come."""

    def __init__(self, form: Form, *, name: str, skip_bad: bool) -> None:
        self.name = name
        self.lines = Lines()
        self.bytes_read = 0
        self.skipped = 0
        """Bad lines that were passed over."""
        self.fault: str | None = None
        """Why reading ended early."""
        self.complete = False
        """True once the end was read."""
        self._make = record_maker(form, random.Random())
        self._skip_bad = skip_bad
        self._batcher = Batcher()

    async def batches(self, descriptor: int) -> AsyncGenerator[Batch, None]:
        """Read to the end, or to the first bad line, and yield what came before it."""
        try:
            async for chunk in read_chunks(descriptor):
                self.bytes_read += len(chunk)
                for batch in self._batches(self.lines.feed(chunk)):
                    yield batch
                if self.fault is not None:
                    return
        except OSError as fault:
            self.fault = f"{self.name} cannot be read on after line {self.lines.number}: {fault.strerror or fault}"
            return
        for batch in self._batches(self.lines.end()):
            yield batch
        self.complete = self.fault is None

    def _batches(self, lines: list[Line]) -> Iterator[Batch]:
        for line in lines:
            try:
                if line.text is None:
                    raise BadLineError("it is too long")
                record = self._make(line.text)
            except BadLineError as fault:
                if not self._passed_over(f"{self.name}, line {line.number}: {fault}"):
                    break
                continue
            if record is not None:
                yield from self._batcher.add(line.number, record)
        yield from self._batcher.take()

    def _passed_over(self, text: str) -> bool:
        if not self._skip_bad:
            self.fault = text
            return False
        self.skipped += 1
        if self.skipped <= BAD_LINES_SHOWN_MAX:
            warn(f"{text}; passed over")
        if self.skipped == BAD_LINES_SHOWN_MAX:
            warn("further bad lines are only counted")
        return True


@contextlib.contextmanager
def _opened(file: Path | None) -> Iterator[int]:
    """Open the file, or take standard input, as a descriptor to read from. Raises OptionError."""
    if file is None or str(file) == "-":
        yield 0
        return
    try:
        descriptor = os.open(file, os.O_RDONLY)
    except OSError as fault:
        raise OptionError(f"{file} cannot be read: {fault.strerror or fault}") from fault
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _size(descriptor: int) -> int | None:
    """Return the bytes of a file; None for what has no size (a pipe, a terminal)."""
    try:
        found = os.fstat(descriptor)
    except OSError:
        return None
    return found.st_size if stat.S_ISREG(found.st_mode) else None
