"""The public members of public classes are those that the reference has: none more, none fewer, and called so."""

from __future__ import annotations

import pytest

import penstock
from tests.docs.members_kit import documented, public_members, written_members

CLASSES = {
    "producer.md": [
        "Producer",
        "ProducerOptions",
        "PutHandle",
        "PutResult",
        "Puts",
        "SyncProducer",
        "SyncPutHandle",
        "SyncPuts",
        "Unwritten",
    ],
}
"""By page of the reference."""


@pytest.mark.parametrize(("page", "name"), [(page, name) for page, names in CLASSES.items() for name in names])
def test_the_public_members_of_a_class_are_those_of_the_reference(page: str, name: str) -> None:
    described = getattr(penstock, name)
    assert public_members(described) == written_members(described, documented(page))


def test_the_comparison_can_fail() -> None:
    class Shown(penstock.SyncPuts):
        __module__ = "penstock.shown"

        def more(self, count: int = 1) -> None:
            self.inner = count

    written = written_members(Shown, documented("producer.md"))
    assert public_members(Shown) - written == {"more(count=1)"}
    assert "wait(timeout_s=None)" in written
