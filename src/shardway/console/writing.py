"""Do what a visitor asked to write, and note it: before it is done, and how it ended."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shardway.console.audit import AuditError
from shardway.console.looks.sampler import fault_text
from shardway.console.page import console_of, rendered, visitor_of
from shardway.errors import ShardwayError, TransportError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from starlette.requests import Request
    from starlette.responses import Response


class PartlyError(ShardwayError):
    """Only a part of a write was done; ``result`` says which. ``unknown``: no answer says whether some of the rest was
    done.
    """

    def __init__(self, text: str, result: Any, *, unknown: bool = False) -> None:
        self.result = result
        self.unknown = unknown
        super().__init__(text)


class Write:
    """A write that a visitor asks for, with what it is about."""

    def __init__(
        self, action: str, title: str, target: dict[str, Any], *, before: Any = None, after: Any = None
    ) -> None:
        self.action = action
        self.title = title
        self.target = target
        self.before = before
        self.after = after


async def written(request: Request, write: Write, do: Callable[[], Awaitable[Any]], *, back: str) -> Response:
    """Make a write, and show how it ended. Raises AuditError: nothing was done, since the write could not be noted.

    The gate has decided already that this visitor may write.
    """
    audit, visitor = console_of(request).audit, visitor_of(request)
    number = await audit.begun(visitor, write.action, write.target, write.before, write.after)
    outcome, result = "done", None
    error: ShardwayError | None = None
    try:
        result = await do()
    except PartlyError as fault:
        outcome, result, error = "unknown" if fault.unknown else "partly", fault.result, fault
    except TransportError as fault:  # the write may have been done: its outcome is unknown
        outcome, error = "unknown", fault
    except ShardwayError as fault:
        outcome, error = "refused", fault
    except BaseException:
        await audit.ended(visitor, write.action, number, "unknown", error="the console failed, or was ended")
        raise
    remark = None
    try:
        told = None if error is None else type(error).__name__
        await audit.ended(visitor, write.action, number, outcome, after=result, error=told)
    except AuditError as fault:
        remark = f"How it ended is not in the audit log: {fault}"
    context = {
        "title": write.title,
        "outcome": outcome,
        "target": write.target,
        "before": write.before,
        "result": result,
        "error": None if error is None else fault_text(error),
        "remark": remark,
        "back": back,
    }
    return rendered(request, "written.html", context, status=200 if outcome == "done" else 502)
