"""Name the store of an application's leases: DynamoDB, a file of SQLite, or PostgreSQL."""

from __future__ import annotations

from typing import Any

import msgspec

from shardway.errors import OptionError
from shardway.stores.dsn import server_address


class Store(msgspec.Struct, frozen=True, kw_only=True):
    """Where applications keep their leases."""

    kind: str = "dynamodb"
    """``dynamodb``, ``sqlite`` or ``postgresql``."""
    location: str = ""
    """A file's path, or a server's URL, which may hold a password; empty for DynamoDB."""
    table: str | None = None
    """The lease table; None: in DynamoDB the application's name, else ``leases``."""

    @classmethod
    def parse(cls, text: str, table: str | None = None) -> Store:
        """Return the store that a text names: ``dynamodb``, ``sqlite:FILE`` or ``postgresql://...``. Raises
        OptionError.
        """
        if text == "dynamodb":
            return cls(table=table)
        if text.startswith("sqlite:") and len(text) > len("sqlite:"):
            return cls(kind="sqlite", location=text.removeprefix("sqlite:"), table=table)
        if text.startswith(("postgresql:", "postgres:")):
            server_address(text)
            return cls(kind="postgresql", location=text, table=table)
        # What else is given may be a URL with a password.
        shown = repr(text) if text.isidentifier() else "this"
        raise OptionError(f"{shown} is no store: dynamodb, sqlite:FILE or postgresql://HOST/DATABASE")

    @property
    def place(self) -> str:
        """Where it is, for messages: without a password."""
        return str(server_address(self.location)) if self.kind == "postgresql" else self.location

    def __repr__(self) -> str:
        return f"Store(kind={self.kind!r}, location={self.place!r}, table={self.table!r})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        """Return what `repr` shows: what msgspec makes for Rich shows each field as it is."""
        return [("kind", self.kind), ("location", self.place), ("table", self.table)]
