"""What a processor lacks."""

from __future__ import annotations


def missing(processor: object, method: str) -> TypeError:
    """To be raised when a method is called that a processor does not have: bases name all, and enforce none."""
    return TypeError(f"{type(processor).__name__} has no method {method}, which a processor of its shape needs")
