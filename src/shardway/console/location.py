"""The place that a console looks at: its region, its account, its endpoint, as the header of each page names them.

No call is made for it. The region is the one that the console's calls go to. The account stands in the ARN of the role,
or in the ARN of any stream that the console has seen.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from shardway.errors import ShardwayError
from shardway.shown import url_without_password

if TYPE_CHECKING:
    from collections.abc import Iterable

    from shardway.console.console import Console

_ACCOUNT = re.compile(r"arn:[a-z0-9-]+:[a-z0-9-]+:[a-z0-9-]*:(\d{12}):", re.ASCII)


class Location(NamedTuple):
    """The place that a console looks at. None stands for what is not known."""

    region: str | None
    account: str | None
    endpoint: str | None
    """The endpoint in place of AWS's own, without a password."""
    profile: str | None

    @property
    def told(self) -> str:
        """The place as one line of text."""
        account = "account not known yet" if self.account is None else f"account {self.account}"
        parts = [self.region or "no region is set", account, self.endpoint, self.profile and f"profile {self.profile}"]
        return " · ".join(one for one in parts if one)


def location_of(console: Console) -> Location:
    """Return the place that the console looks at, as far as the console knows the place by now."""
    connection = console.connection
    endpoint = None if connection.endpoint_url is None else url_without_password(connection.endpoint_url)
    return Location(_region(console), _account(console), endpoint, connection.profile)


def account_in(arns: Iterable[str | None]) -> str | None:
    """Return the account of the first ARN that has one; None where no ARN has."""
    found = (_ACCOUNT.match(one) for one in arns if one is not None)
    return next((match[1] for match in found if match is not None), None)


def _region(console: Console) -> str | None:
    try:
        return console.inspector.wire.region
    except ShardwayError:
        return None  # each look says on its page that no region is set


def _account(console: Console) -> str | None:
    if console.account is None:
        seen = console.sampler.newest(console.topics.streams())
        views = [one.arn for one in seen.views.values()] if seen is not None else []
        listed = [one.arn for one in seen.report.streams] if seen is not None else []
        console.account = account_in([console.connection.role_arn, *listed, *views])
    return console.account
