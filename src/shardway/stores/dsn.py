"""The URL of a PostgreSQL server is checked when it is given, and shown without its user and password.

A password that is not percent-encoded moves the parts of a URL: of ``postgresql://ada:12/x@db/shop``, the host is
``ada``, the port ``12``. So the checks leave no doubt about where the password ends, and a message never quotes the
text. Source of the form: PostgreSQL, chapter libpq, "Connection URIs".
"""

from __future__ import annotations

import re
from typing import NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

from shardway.errors import OptionError
from shardway.shown import one_line

PARAMETERS_MAX = 100
HOSTS_MAX = 100
PORT_MAX = 65_535
_SCHEMES = ("postgresql", "postgres")
_LIBPQ = frozenset((
    "host", "hostaddr", "port", "dbname", "database", "user", "password", "passfile", "require_auth",
    "channel_binding", "connect_timeout", "client_encoding", "options", "application_name",
    "fallback_application_name", "keepalives", "keepalives_idle", "keepalives_interval", "keepalives_count",
    "tcp_user_timeout", "replication", "gssencmode", "sslmode", "requiressl", "sslnegotiation", "sslcompression",
    "sslcert", "sslkey", "sslpassword", "sslcertmode", "sslrootcert", "sslcrl", "sslcrldir", "sslsni", "requirepeer",
    "ssl_min_protocol_version", "ssl_max_protocol_version", "min_protocol_version", "max_protocol_version",
    "krbsrvname", "gsslib", "gssdelegation", "service", "servicefile", "target_session_attrs", "load_balance_hosts",
))  # fmt: skip
"""The parameters of libpq. asyncpg takes any other name as a setting of the server, which may quote it in an error."""
_FORM = (
    "a URL of PostgreSQL is postgresql://USER:PASSWORD@HOST:PORT/DATABASE, with each special character of the password "
    "percent-encoded (/ as %2F, # as %23, ? as %3F, @ as %40, & as %26, % as %25); PGPASSWORD and ~/.pgpass keep a "
    "password out of it"
)


class ServerAddress(NamedTuple):
    """What a URL says of a server, without a user or a password."""

    scheme: str
    hosts: str
    """The hosts with their ports, as they stand in the URL, or a folder of sockets. Empty: the environment says it."""
    database: str

    def __str__(self) -> str:
        return one_line(f"{self.scheme}://{self.hosts}" + (f"/{self.database}" if self.database else ""))


def server_address(dsn: str) -> ServerAddress:
    """Return where the server of a URL is. Raises OptionError, which does not quote the URL."""
    if fault := _sign_fault(dsn):
        raise OptionError(f"{fault}; {_FORM}")
    try:
        parts = urlsplit(dsn)
        query = parse_qsl(parts.query, strict_parsing=bool(parts.query), max_num_fields=PARAMETERS_MAX)
    except ValueError:  # Its text may hold a part of the password.
        raise OptionError(f"the URL of PostgreSQL cannot be taken apart; {_FORM}") from None
    given = dict(query)
    hosts = parts.netloc.rpartition("@")[2]
    fault = _hosts_fault(hosts) or _ports_fault(given.get("port", "")) or _parameters_fault([name for name, _ in query])
    if fault:
        raise OptionError(f"{fault}; {_FORM}")
    database = unquote(parts.path.removeprefix("/")) or given.get("dbname") or given.get("database") or ""
    return ServerAddress(parts.scheme, hosts or given.get("host", ""), database)


def _sign_fault(dsn: str) -> str | None:
    """Return what is wrong with the signs that part a URL, if anything is."""
    if not dsn.startswith(tuple(f"{one}://" for one in _SCHEMES)):
        return "the URL of PostgreSQL does not begin with postgresql:// or postgres://"
    if any(one < " " or one == "\x7f" for one in dsn):
        return "the URL of PostgreSQL has a line feed or another control character"
    if "#" in dsn:
        return "the URL of PostgreSQL has a #"
    behind = dsn.partition("://")[2]
    authority = re.split("[/?]", behind, maxsplit=1)[0]
    if behind.count("@") != authority.count("@") or authority.count("@") > 1:
        return "the URL of PostgreSQL has an @ that is not the one behind its user and password"
    return None


def _hosts_fault(hosts: str) -> str | None:
    """Return what is wrong with the hosts and their ports, if anything is. A port may be a part of a password."""
    found = hosts.split(",") if hosts else []
    if len(found) > HOSTS_MAX:
        return f"the URL of PostgreSQL has more than {HOSTS_MAX} hosts"
    for one in found:
        if one.startswith("["):  # an address of IPv6
            name, _, port = one.rpartition("]")
            port = port.removeprefix(":")
        else:
            name, _, port = one.partition(":")
        if not name:
            return "the URL of PostgreSQL has a port without a host"
        if fault := _ports_fault(port):
            return fault
    return None


def _ports_fault(ports: str) -> str | None:
    for port in filter(None, ports.split(",")):
        if not re.fullmatch("[0-9]{1,5}", port) or not 0 < int(port) <= PORT_MAX:
            return f"the URL of PostgreSQL has a port that is no number up to {PORT_MAX}"
    return None


def _parameters_fault(names: list[str]) -> str | None:
    """Return what is wrong with the parameters: an & of a password makes the rest of it the name of a parameter."""
    if "password" in names and not _LIBPQ.issuperset(names[names.index("password") :]):
        return "the URL of PostgreSQL has, behind the password, a parameter that libpq does not know"
    return None
