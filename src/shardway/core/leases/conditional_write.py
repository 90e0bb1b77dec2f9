"""A conditional write to a lease is a value with three outcomes; a row that was read back shows which one it had.

Everything that an owner writes raises the counter by one and asks for the counter, owner and checkpoint owner that the
writer last saw. So of all writes that are under way from one state of the row at most one is ever applied, and a writer
that got an error for an answer reads the row to find out whether it was its own write: `applied`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, TypeAlias

from shardway.core.leases.row import CHECKPOINT_OWNER, OWNER

if TYPE_CHECKING:
    from collections.abc import Mapping

    from shardway.core.leases.row import LeaseRow


class Kind(StrEnum):
    """The purposes of a write."""

    TAKE = "take"
    RENEW = "renew"
    CHECKPOINT = "checkpoint"
    PREPARE = "prepare"
    GIVE = "give"
    FREE = "free"
    ASK_HANDOFF = "ask_handoff"
    METADATA = "metadata"
    BEGIN_ANEW = "begin_anew"
    RESTORE = "restore"
    MOVE = "move"
    DELETE = "delete"


@dataclass(frozen=True, slots=True)
class Write:
    """A conditional change of one row that exists. A value of ``None`` means that the attribute is, or becomes, absent.

    A delete changes nothing: the row goes.
    """

    kind: Kind
    key: str
    expects: tuple[tuple[str, Any], ...]
    changes: tuple[tuple[str, Any], ...]

    def allowed_on(self, attributes: Mapping[str, Any] | None) -> bool:
        """True when the condition holds for a row's plain attributes; None is a row that does not exist."""
        return attributes is not None and all(attributes.get(name) == value for name, value in self.expects)

    def onto(self, attributes: Mapping[str, Any]) -> dict[str, Any]:
        """Return the row's plain attributes with the changes made."""
        after = {**attributes, **dict(self.changes)}
        return {name: value for name, value in after.items() if value is not None}

    def change_of(self, name: str) -> Any:
        """Return what the attribute becomes; None when it is removed, or left alone."""
        return dict(self.changes).get(name)


@dataclass(frozen=True, slots=True)
class Done:
    """The write was applied. ``row`` is what the table holds since then; None after a delete."""

    row: LeaseRow | None


@dataclass(frozen=True, slots=True)
class Refused:
    """The condition did not hold. ``row`` was read with the refusal, or after it; None: there is no such row."""

    row: LeaseRow | None


@dataclass(frozen=True, slots=True)
class Unknown:
    """No answer came, or an error without an outcome: the write may be applied, now or even later."""

    reason: str


Outcome: TypeAlias = Done | Refused | Unknown
"""The outcomes of a write."""


def applied(write: Write, row: LeaseRow | None) -> bool:
    """True when a row that was read after the write shows that it was applied.

    A KCL leader may have asked for a handoff since then, which moves the owner's name and no counter.
    False means: not applied, or not yet, or written over. It cannot be applied any more if its counter has passed.
    """
    if write.kind is Kind.DELETE:
        return row is None
    if row is None:
        return False
    found = row.attributes()
    # What was expected and not changed holds too: the same counter may be another owner's.
    wanted = dict(write.expects) | dict(write.changes)
    owner = wanted.get(OWNER)
    if owner is not None and wanted.get(CHECKPOINT_OWNER) is None and row.checkpoint_owner == owner:
        found |= {OWNER: owner, CHECKPOINT_OWNER: None}
    return all(found.get(name) == value for name, value in wanted.items())


def resolve(write: Write, row: LeaseRow | None) -> Outcome:
    """Return the outcome of a write that had none, by the row that a consistent read found after it.

    It is Unknown again when the row is still as the write expects it: then it was not applied *yet*. Repeat it as it
    is.
    """
    if applied(write, row):
        return Done(row)
    if row is not None and write.allowed_on(row.attributes()):
        return Unknown("the row is as it was")
    return Refused(row)
