"""The errors of the service, in its own words."""

from __future__ import annotations

from typing import Any

import msgspec


class ModelError(Exception):
    """An error answer of the service.

    ``code`` is AWS's error code without a namespace, ``message`` its text (None: the answer carries no text),
    ``status`` the HTTP status (400, or 500 when the service failed), ``extra`` further members of the answer's body.
    """

    def __init__(
        self, code: str, message: str | None = None, *, status: int = 400, extra: dict[str, Any] | None = None
    ) -> None:
        self.code = code
        self.message = message
        self.status = status
        self.extra = extra or {}
        super().__init__(f"{code}: {message}" if message else code)

    def body(self) -> bytes:
        """Return the JSON body of the answer: ``__type``, ``message`` and what ``extra`` adds.

        A SerializationException's text is in ``Message``: the service's parser writes it, not the service.
        """
        members: dict[str, Any] = {"__type": self.code}
        if self.message is not None:
            members["Message" if self.code == "SerializationException" else "message"] = self.message
        return msgspec.json.encode(members | self.extra)


def invalid(message: str) -> ModelError:
    """Return an InvalidArgumentException: the request is understood, and wrong."""
    return ModelError("InvalidArgumentException", message)


def validation(message: str) -> ModelError:
    """Return a ValidationException: a member breaks a constraint of the API's model, or members contradict each
    other.
    """
    return ModelError("ValidationException", message)


def not_found(message: str) -> ModelError:
    """Return a ResourceNotFoundException."""
    return ModelError("ResourceNotFoundException", message)


def in_use(message: str) -> ModelError:
    """Return a ResourceInUseException: the resource exists already, or is not in a state that allows the call."""
    return ModelError("ResourceInUseException", message)


def limit_exceeded(message: str) -> ModelError:
    """Return a LimitExceededException: a quota, or a call rate of the control plane, is exceeded."""
    return ModelError("LimitExceededException", message)


def serialization(message: str | None = None) -> ModelError:
    """Return a SerializationException: the body is no JSON, or a member has the wrong JSON type."""
    return ModelError("SerializationException", message)


def stream_not_found(name: str, account_id: str) -> ModelError:
    """Return a ResourceNotFoundException for a stream that does not exist."""
    return not_found(f"Stream {name} under account {account_id} not found.")


def shard_not_found(shard_id: str, name: str, account_id: str) -> ModelError:
    """Return a ResourceNotFoundException for a shard that a resharding call or a listing names."""
    return not_found(f"Could not find shard {shard_id} in stream {name} under account {account_id}.")


def shard_absent(shard_id: str, name: str, account_id: str) -> ModelError:
    """Return a ResourceNotFoundException for a shard that a reader names: the data plane words it in another way."""
    return not_found(f"Shard {shard_id} in stream {name} under account {account_id} does not exist")


def dry_run() -> ModelError:
    """Return a DryRunOperationException: the call would have been done, had it not asked to be checked only."""
    return ModelError("DryRunOperationException", "Request would have succeeded, but DryRun flag is set.")
