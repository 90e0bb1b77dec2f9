"""How what runs beside the reading of a stream tells that it has failed."""

from __future__ import annotations

import traceback
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from penstock.core.ledger.ledger import named
from penstock.events import TaskFailed

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.tasks import Heard


def told(
    on_event: Callable[[Any], None],
    where: tuple[str, str | None],
    work: str,
    what_follows: str,
    then: Callable[[BaseException], object] | None = None,
) -> Heard:
    """A handler for a task (`penstock.tasks.spawn`): tells `TaskFailed`, and does then what follows. ``where``: the
    stream and the shard.
    """

    def hear(error: BaseException) -> None:
        try:
            on_event(TaskFailed(*where, work, named(error), _at(error), what_follows))
        finally:
            if then is not None:
                then(error)

    return hear


def _at(error: BaseException) -> str:
    """The deepest line. The message is not told: it may be a record's."""
    frames = list(traceback.walk_tb(error.__traceback__))
    return f"{PurePath(frames[-1][0].f_code.co_filename).name}:{frames[-1][1]}" if frames else "not raised"
