"""What the commands share that look: an inspector for one look, and a file of what earlier looks at leases saw."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence
    from typing import TypeVar

    from penstock.inspect import Inspector, LagReport, LagTimes, Look, Snapshot, Store
    from penstock.wiring import ConnectionOptions

    T = TypeVar("T")

HISTORY_BYTES_MAX = 64 * 1024 * 1024


async def looking(
    connection: ConnectionOptions, look: Callable[[Inspector], Awaitable[T]], *, calls_per_s: float | None = None
) -> T:
    """What one look at AWS finds."""
    from penstock.inspect import Inspector

    given: dict[str, float] = {} if calls_per_s is None else {"calls_per_s": calls_per_s}
    async with Inspector(connection, **given) as inspector:
        return await look(inspector)


async def lag_since(
    inspector: Inspector, application: str, stream: str | None, store: Store, times: LagTimes, history: Path | None
) -> LagReport:
    """How far an application is behind, compared with what the file ``history`` keeps of earlier runs, if one is given;
    that is written then, too. Raises OptionError.
    """
    known = {} if history is None else _looks_of(history)
    report, looks = await inspector.lag(application, stream, store, times=times, history=known.get(application))
    if history is not None:
        _keep_looks(history, {**known, application: looks})
    return report


async def snapshot_since(
    inspector: Inspector,
    application: str | None,
    stream: str | None,
    store: Store,
    times: LagTimes,
    history: Path | None,
) -> Snapshot:
    """What the doctor looks at, compared in the same way with earlier runs. Raises OptionError."""
    known = {} if history is None else _looks_of(history)
    earlier = known.get(application) if application is not None else None
    taken = await inspector.snapshot(application, stream, store, times=times, history=earlier)
    if history is not None and application is not None:
        _keep_looks(history, {**known, application: taken.looks})
    return taken


def _looks_of(path: Path) -> dict[str, Mapping[str, Sequence[Look]]]:
    """The looks that a file keeps, by applications and lease keys. Raises OptionError."""
    from penstock.inspect import Look

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
    """Replace the file as a whole: a run that is broken off leaves the one before."""
    try:
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(msgspec.json.encode(looks))
            os.replace(name, path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
    except OSError as fault:
        raise OptionError(f"--history {path}: {fault.strerror}") from fault
