"""What a test reads again after something has happened."""

from __future__ import annotations

from typing import TypeVar

T = TypeVar("T")


def now(value: T) -> T:
    """``value``, as it is at this moment.

    A type checker takes an attribute for unchanged once a test has asserted what it is, and the rest of the test for
    unreachable when that asserts something else. It knows nothing about what is told through a call.
    """
    return value
