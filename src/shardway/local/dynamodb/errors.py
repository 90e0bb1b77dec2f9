"""The errors of DynamoDB, in its own words."""

from __future__ import annotations

from typing import Any

import msgspec

_NAMESPACES = {
    "ValidationException": "com.amazon.coral.validate#",
    "SerializationException": "com.amazon.coral.service#",
    "UnknownOperationException": "com.amazon.coral.service#",
}
_NAMESPACE = "com.amazonaws.dynamodb.v20120810#"
_CAPITAL = frozenset({"SerializationException", "TransactionCanceledException"})
"""The codes whose text is in ``Message``; the others have it in ``message``."""


class DynamoError(Exception):
    """An error answer.

    ``code`` is AWS's error code without a namespace, ``message`` its text, ``extra`` further members of the body.
    """

    def __init__(self, code: str, message: str, extra: dict[str, Any] | None = None) -> None:
        self.code = code
        self.message = message
        self.extra = extra or {}
        super().__init__(f"{code}: {message}")

    def body(self) -> bytes:
        """Return the JSON body of the answer."""
        text = "Message" if self.code in _CAPITAL else "message"
        members = {"__type": _NAMESPACES.get(self.code, _NAMESPACE) + self.code, text: self.message}
        return msgspec.json.encode(members | self.extra)


def validation(message: str) -> DynamoError:
    """Return a ValidationException: the request contradicts itself, the table or a rule."""
    return DynamoError("ValidationException", message)


def invalid_values(message: str) -> DynamoError:
    """Return a ValidationException for a parameter's value."""
    return validation(f"One or more parameter values were invalid: {message}")


def constraint(value: object, member: str, rule: str) -> DynamoError:
    """Return a ValidationException for a member that breaks a rule of the API's model."""
    shown = "null" if value is None else f"'{value}'"
    text = f"Value {shown} at '{member}' failed to satisfy constraint: Member must {rule}"
    return validation(f"1 validation error detected: {text}")


def serialization(message: str) -> DynamoError:
    """Return a SerializationException: the body is no JSON, or a member has the wrong JSON type."""
    return DynamoError("SerializationException", message)


def not_found(message: str = "Requested resource not found") -> DynamoError:
    """Return a ResourceNotFoundException."""
    return DynamoError("ResourceNotFoundException", message)


def in_use(message: str) -> DynamoError:
    """Return a ResourceInUseException: the table exists already, or is not in a state that allows the call."""
    return DynamoError("ResourceInUseException", message)


def condition_failed(item: dict[str, Any] | None) -> DynamoError:
    """Return a ConditionalCheckFailedException; with ``item``, the answer shows the row that was found."""
    return DynamoError(
        "ConditionalCheckFailedException", "The conditional request failed", {"Item": item} if item else None
    )
