"""The commands that look share this: an inspector for one look, and a file of what earlier looks at leases saw.

All commands name things in one way. A command of an application takes ``APPLICATION``, and the stream behind it as
``--stream``; a command of a stream takes ``STREAM``. A name of the other kind is told as that.
"""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from shardway.cli.output import replace_file
from shardway.cli.report_output import back_s
from shardway.errors import NotFoundError, OptionError, ShardwayError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
    from typing import TypeVar

    from shardway.inspect import Inspector, LagReport, LagTimes, Look, Snapshot, Store
    from shardway.wiring import ConnectionOptions

    T = TypeVar("T")

HISTORY_BYTES_MAX = 64 * 1024 * 1024


class Names(NamedTuple):
    """The names that a command was given, and where it looks for the application: the store and the table, as they
    are written.
    """

    applications: tuple[str, ...] = ()
    stream: str | None = None
    store: tuple[str, str | None] = ("dynamodb", None)

    async def confused(self, inspector: Inspector) -> str | None:
        """Return what is wrong with a name that was not found, where it fits the other kind of thing: the sentence
        names both kinds, and how to write each. None: no name fits. Raises ShardwayError.
        """
        from shardway.inspect import Store

        store = Store.parse(*self.store)
        for one in self.applications:
            if not await _is_application(inspector, one, store) and await _is_stream(inspector, one):
                return (
                    f"{one} is the name of a stream, and there is no application of this name: commands of an "
                    f"application take APPLICATION, and its stream as --stream {one}"
                )
        stream = self.stream
        if stream is None or await _is_stream(inspector, stream) or not await _is_application(inspector, stream, store):
            return None
        return (
            f"{stream} is the name of an application, and there is no stream of this name: commands of a stream take "
            f"STREAM; shardway app describe {stream} names the streams of an application"
        )

    async def tell(self, inspector: Inspector, fault: NotFoundError) -> None:
        """Raise OptionError where a name that was not found fits the other kind of thing."""
        try:
            confused = await self.confused(inspector)
        except ShardwayError:
            return  # What was not found is told as it is: these looks were only to say more.
        if confused is not None:
            raise OptionError(confused) from fault


async def _is_application(inspector: Inspector, name: str, store: Store) -> bool:
    try:
        await inspector.application(name, store)
    except NotFoundError:
        return False
    return True


async def _is_stream(inspector: Inspector, name: str) -> bool:
    try:
        return (await inspector.stream(name, shards=False, consumers=False)).stream is not None
    except (NotFoundError, OptionError):
        return False


async def looking(
    connection: ConnectionOptions,
    look: Callable[[Inspector], Awaitable[T]],
    *,
    names: Names | None = None,
    calls_per_s: float | None = None,
) -> T:
    """Return what one look at AWS finds. ``names``: what the command was given. Raises OptionError for a name that is
    not found and fits the other kind of thing.
    """
    from shardway.inspect import Inspector

    given: dict[str, float] = {} if calls_per_s is None else {"calls_per_s": calls_per_s}
    async with Inspector(connection, **given) as inspector:
        try:
            return await look(inspector)
        except NotFoundError as fault:
            if names is not None:
                await names.tell(inspector, fault)
            raise


@contextlib.asynccontextmanager
async def named_streams(connection: ConnectionOptions, *streams: str | None) -> AsyncIterator[None]:
    """Do what `looking` does for names that are not found, where another part than an inspector looks for streams."""
    from shardway.inspect import Inspector

    try:
        yield
    except NotFoundError as fault:
        async with Inspector(connection) as inspector:
            for one in streams:
                await Names(stream=one).tell(inspector, fault)
        raise


class LookHistory:
    """The looks of earlier runs that a file keeps, and the age up to which they count. Without a file there are
    none.
    """

    def __init__(self, path: Path | None, since: str | None = None) -> None:
        """Raises OptionError."""
        self.back_s = back_s(since, time.time())
        """How many seconds looks count; None: they count for as long as they are kept."""
        self._path = path
        self._known_looks = {} if path is None else _looks_of(path)

    def of(self, application: str | None) -> Mapping[str, Sequence[Look]]:
        """Return all looks at an application's leases."""
        return {} if application is None else self._known_looks.get(application, {})

    def counting(self, times: LagTimes) -> LagTimes:
        """Return ``times`` with a history that is as long as earlier looks count."""
        return times if self.back_s is None else msgspec.structs.replace(times, history_s=self.back_s)

    def keep(self, application: str, looks: Mapping[str, Sequence[Look]]) -> None:
        """Write an application's looks in place of the kept ones that they continue. Looks that did not count stay."""
        if self._path is None:
            return
        kept = {key: [*self._earlier_looks(application, key, found), *found] for key, found in looks.items()}
        _keep_looks(self._path, {**self._known_looks, application: kept})

    def _earlier_looks(self, application: str, key: str, looks: Sequence[Look]) -> list[Look]:
        from shardway.inspect.lag.looks import LOOKS_MAX
        from shardway.inspect.lag.reports import HISTORY_S

        if self.back_s is None or not looks:
            return []
        oldest_s, end_s = looks[-1].at_s - HISTORY_S, looks[0].at_s
        return [one for one in self.of(application).get(key, ()) if oldest_s <= one.at_s < end_s][-LOOKS_MAX:]


async def lag_since(
    inspector: Inspector, application: str, stream: str | None, store: Store, times: LagTimes, earlier: LookHistory
) -> LagReport:
    """Return how far an application is behind, compared with what earlier runs saw, and keep this run's looks, too.
    Raises OptionError.
    """
    report, looks = await inspector.lag(
        application, stream, store, times=earlier.counting(times), history=earlier.of(application)
    )
    earlier.keep(application, looks)
    return report


async def snapshot_since(
    inspector: Inspector,
    application: str | None,
    stream: str | None,
    store: Store,
    times: LagTimes,
    earlier: LookHistory,
) -> Snapshot:
    """Return the snapshot that the doctor looks at, with the looks of earlier runs; see `lag_since`. Raises
    OptionError.
    """
    taken = await inspector.snapshot(
        application,
        stream,
        store,
        times=earlier.counting(times),
        history=earlier.of(application),
        heat_s=earlier.back_s,
    )
    if application is not None:
        earlier.keep(application, taken.looks)
    return taken


def _looks_of(path: Path) -> dict[str, Mapping[str, Sequence[Look]]]:
    """Return the looks that a file keeps, by applications and lease keys. Raises OptionError."""
    from shardway.inspect import Look

    try:
        if not path.exists():
            return {}
        if path.stat().st_size > HISTORY_BYTES_MAX:
            raise OptionError(f"--history {path}: it has more than {HISTORY_BYTES_MAX} bytes: remove it")
        kept = msgspec.json.decode(path.read_bytes(), type=dict[str, dict[str, list[Look]]])
    except OSError as fault:
        raise OptionError(f"--history {path}: {fault.strerror}") from fault
    except msgspec.DecodeError as fault:
        raise OptionError(f"--history {path}: it holds no looks of this command: {fault}") from None
    return {**kept}


def _keep_looks(path: Path, looks: Mapping[str, Any]) -> None:
    """Write looks in place of those that the file keeps. Raises OptionError."""
    try:
        replace_file(path, msgspec.json.encode(looks))
    except OSError as fault:
        raise OptionError(f"--history {path}: {fault.strerror}") from fault
