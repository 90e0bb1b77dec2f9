"""The public members of public classes are those that the reference has: none more, none fewer, and called so."""

from __future__ import annotations

import inspect

import pytest

import shardway
from shardway import telemetry
from tests.docs.members_kit import REFERENCE, documented, public_members, written_members

CLASSES: dict[str, list[type]] = {
    "producer.md": [
        shardway.Producer,
        shardway.ProducerOptions,
        shardway.PutHandle,
        shardway.PutResult,
        shardway.Puts,
        shardway.SyncProducer,
        shardway.SyncPutHandle,
        shardway.SyncPuts,
        shardway.Unwritten,
    ],
    "telemetry.md": [getattr(telemetry, name) for name in telemetry.__all__ if name != "together"],
}
"""By page of the reference."""


@pytest.mark.parametrize(
    ("page", "described"),
    [(page, kind) for page, kinds in CLASSES.items() for kind in kinds],
    ids=lambda one: one if isinstance(one, str) else one.__name__,
)
def test_the_public_members_of_a_class_are_those_of_the_reference(page: str, described: type) -> None:
    assert public_members(described) == written_members(described, documented(page))


@pytest.mark.parametrize("name", [name for name in telemetry.__all__ if name.endswith(("Exporter", "Collector"))])
def test_the_reference_shows_how_an_exporter_is_made(name: str) -> None:
    given = inspect.signature(getattr(telemetry, name)).parameters.values()
    bare = inspect.Signature([one.replace(annotation=inspect.Parameter.empty) for one in given])
    assert f"`{name}{bare}`" in (REFERENCE / "telemetry.md").read_text(encoding="utf-8")


def test_the_comparison_can_fail() -> None:
    class Shown(shardway.SyncPuts):
        __module__ = "shardway.shown"

        def more(self, count: int = 1) -> None:
            self.inner = count

    written = written_members(Shown, documented("producer.md"))
    assert public_members(Shown) - written == {"more(count=1)"}
    assert "wait(timeout_s=None)" in written
