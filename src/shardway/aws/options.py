"""Connection options say how to reach AWS: region, endpoint, identity, and the bounds of the connection. They are plain
values that can be pickled.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, Any, Literal, Protocol
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta

from shardway.core.options.base import Options, fields_of
from shardway.core.options.hints import SECRET, shown
from shardway.core.options.unknown import unknown_names
from shardway.core.signatures import SignedMeta
from shardway.errors import CredentialsError
from shardway.shown import url_without_password

if TYPE_CHECKING:
    from collections.abc import Iterator

REGION = re.compile(r"[A-Za-z0-9]+(-[A-Za-z0-9]+)*", re.ASCII)
"""The form of a region, which is part of a host's name and of a signature's scope."""
REGION_CHARACTERS_MAX = 63
VISIBLE = re.compile(r"[\x21-\x7e]*", re.ASCII)
"""The characters that one word of a header's value, and a URL, may hold."""


class _CredentialsMeta(SignedMeta):
    """Makes credentials, and knows the names that boto3 has for them."""

    if not TYPE_CHECKING:

        def __call__(self, *values: Any, **given: Any) -> Any:
            if odd := given.keys() - {*self.__struct_fields__}:
                hints = dict.fromkeys(self.__struct_fields__)
                raise TypeError(unknown_names("Credentials", sorted(odd), hints, fields_of, elsewhere={}))
            return super().__call__(*values, **given)


class Credentials(msgspec.Struct, frozen=True, metaclass=_CredentialsMeta):
    """AWS credentials at one moment. ``expires_at_s`` is epoch seconds, None when they do not expire."""

    access_key_id: str
    secret_access_key: str
    session_token: str | None = None
    expires_at_s: float | None = None

    def __post_init__(self) -> None:
        """Raises CredentialsError for what no header takes: a line break would begin a header of its own."""
        for name in ("access_key_id", "secret_access_key"):
            if not isinstance(value := getattr(self, name), str) or not value:
                raise CredentialsError(f"the {name} of AWS credentials is a text, not {shown(value) or 'empty'}")
        if not isinstance(self.session_token, str | None):
            raise CredentialsError(f"the session_token of AWS credentials is a text, not {shown(self.session_token)}")
        if not isinstance(self.expires_at_s, int | float | None) or isinstance(self.expires_at_s, bool):
            raise CredentialsError(
                f"the expires_at_s of AWS credentials is in epoch seconds, not {shown(self.expires_at_s)}: of a "
                "datetime, give its timestamp()"
            )
        for name, value in (("access key ID", self.access_key_id), ("session token", self.session_token or "")):
            if not VISIBLE.fullmatch(value):
                raise CredentialsError(f"the AWS {name} {_what_is_odd(value)}: correct it where it comes from")
        if any(one in self.secret_access_key for one in "\r\n"):
            raise CredentialsError(
                f"the AWS secret access key {_what_is_odd(self.secret_access_key)}: correct it where it comes from"
            )

    def __repr__(self) -> str:
        return f"Credentials({self.access_key_id!r}, secrets hidden, expires_at_s={self.expires_at_s!r})"


class SdkSession(Protocol):
    """A session of boto3 or botocore, which has credentials and renews them."""

    def get_credentials(self) -> Any:
        """Return the session's credentials; None: it has none."""


class ConnectionOptions(Options, frozen=True, kw_only=True):
    """The options say how AWS is reached. A field that is None is looked up as the AWS SDK for Python does.

    ``endpoint_url`` holds for every service that is called (STS has its own). Without
    ``credentials`` the SDK's chain is asked. With ``role_arn`` that identity assumes the role
    first.
    """

    region: str | None = None
    """The AWS region. None: that of AWS_REGION, AWS_DEFAULT_REGION, or the profile."""
    endpoint_url: str | None = None
    """The endpoint to call in place of AWS's own. None: as AWS_ENDPOINT_URL_KINESIS, AWS_ENDPOINT_URL or the profile
    say.
    """
    profile: str | None = None
    """The profile of ~/.aws/config and ~/.aws/credentials to use. None: the one that AWS_PROFILE names."""
    credentials: Annotated[
        Credentials | SdkSession | Callable[[], Credentials | Awaitable[Credentials]] | None,
        Meta(title="Credentials, a function that returns them, or a session of boto3 or botocore"),
    ] = None
    """Credentials that are used as they are; or a function, plain or async, that returns new `Credentials`; or a
    session of boto3 or botocore. The function and the session are asked again before their credentials expire, and when
    a service refuses them. None: they come from the environment, the profile, the container or the instance, in the
    SDK's order, and are refreshed in time.
    """
    role_arn: str | None = None
    """A role that the credentials assume first."""
    role_session_name: str | None = None
    role_external_id: Annotated[str | None, SECRET] = None
    role_duration_s: Annotated[int, Meta(gt=0)] = 3600
    """The name of the role's session, the external ID that its trust policy wants, and how long a session lasts."""
    sts_endpoint_url: str | None = None
    """The address at which the role is assumed. None: AWS's own in the region."""
    use_fips: bool | None = None
    """True: call AWS's endpoints that keep to FIPS 140. None: as AWS_USE_FIPS_ENDPOINT or the profile say."""
    connect_timeout_s: Annotated[float, Meta(gt=0)] = 5.0
    """How long a connection may take to open: TCP, TLS, and a proxy's tunnel."""
    read_timeout_s: Annotated[float, Meta(gt=0)] = 30.0
    """How long the service may be silent inside one answer."""
    request_timeout_s: Annotated[float, Meta(gt=0)] = 60.0
    """How long one request may take, from its first byte to its answer's last. A call that is repeated has it for each
    of its requests; subscriptions have no such bound (KPL: RequestTimeout).
    """
    connections_max: Annotated[int, Meta(gt=0)] = 64
    """The most calls that run at the same time by HTTP/1.1, and the most HTTP/2 connections that are open to one
    endpoint; further requests wait. Each subscription by HTTP/1.1 has a connection of its own beside these.
    """
    ca_bundle: str | None = None
    """A file or folder of CA certificates that the client uses in place of the system's. None: what AWS_CA_BUNDLE
    names, if it is set.
    """
    verify: bool = True
    """False accepts any TLS certificate: for local tests only."""
    user_agent_tag: str = ""
    """A text that the client adds to the User-Agent header, for AWS's logs."""
    cbor: bool = True
    """True: put large records as CBOR, as the AWS SDK for Java does, which takes a quarter fewer bytes than base64 in
    JSON. The client notices an endpoint that does not understand CBOR (some emulators do not), and sends it JSON.
    """

    http2: Literal["off", "subscriptions", "all"] = "off"
    """Which requests go by HTTP/2, many over one connection: none, SubscribeToShard, or ``"all"``. It needs
    ``pip install 'shardway[http2]'``. The client uses HTTP/1.1 with a service that does not choose HTTP/2 (ALPN).
    """
    http2_cleartext: bool = False
    """True: speak HTTP/2 also without TLS, to an ``http://`` endpoint that is known to understand it and is not behind
    a proxy. False: the client uses HTTP/1.1 with such an endpoint.
    """

    def _text_of(self, name: str, value: object) -> str:
        # A session, or an object that is called, may show what it holds.
        is_plain = name != "credentials" or value is None or isinstance(value, Credentials) or callable(value)
        return super()._text_of(name, value) if is_plain else f"<{type(value).__name__}>"

    def _rules(self) -> Iterator[str]:
        if isinstance(self.credentials, type):
            yield f"credentials is a session or a function, not {shown(self.credentials)}: make one, with ()"
        if self.region is not None and (fault := region_fault(self.region)):
            yield fault
        if not VISIBLE.fullmatch(self.user_agent_tag.replace(" ", "")):
            yield f"user_agent_tag {_what_is_odd(self.user_agent_tag)}: write it in plain ASCII, on one line"
        for name in ("endpoint_url", "sts_endpoint_url"):
            if (url := getattr(self, name)) is not None and (fault := url_fault(url)):
                yield f"{name} {fault}"
        for name in ("role_session_name", "role_external_id"):
            if getattr(self, name) is not None and self.role_arn is None:
                yield f"{name} is given without role_arn"
        if self.use_fips and self.endpoint_url is not None:
            yield "use_fips and endpoint_url contradict each other: an endpoint given by URL is used as it is"


def region_fault(region: str) -> str | None:
    """Return what is wrong with the name of a region, if anything is."""
    if REGION.fullmatch(region) and len(region) <= REGION_CHARACTERS_MAX:
        return None
    return f"{region[:REGION_CHARACTERS_MAX]!r} is no AWS region (they look like eu-west-1)"


def url_fault(url: str) -> str | None:
    """Return what is wrong with an endpoint's URL, if anything is. A password in it is not repeated."""
    shown = repr(url_without_password(url))
    if not url.startswith(("http://", "https://")):
        return "must begin with http:// or https://"
    if not VISIBLE.fullmatch(url):
        return f"is no URL: {shown} {_what_is_odd(url)} (a host's name is written in ASCII, as xn--...)"
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:  # its text may hold a part of the password
        return f"is no URL: {shown} (one looks like https://host:port)"
    if not parts.hostname:
        return f"is no URL: {shown} names no host (one looks like https://host:port)"
    if "@" in parts.netloc or parts.query or parts.fragment:
        return "may not hold a user name, a password, a query or a fragment: give credentials as credentials"
    return None


def _what_is_odd(value: str) -> str:
    """Return why the value cannot be sent, without showing it."""
    if value.strip("\r\n") != value:
        return "begins or ends with a line break"
    for place, one in enumerate(value):
        if not "\x21" <= one <= "\x7e":
            return f"holds {f'U+{ord(one):04X}'} at character {place + 1} of {len(value)}"
    return "holds a character that cannot be sent"
