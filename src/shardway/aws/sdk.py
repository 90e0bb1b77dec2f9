"""Look things up as the AWS SDK for Python does: in configuration files and the environment, at credential providers,
by endpoint rules.

It is the only module that imports botocore, and only when something must be looked up that was not given.
Everything in here may block (files, metadata services, sign-on services): call it from a thread.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import threading
from typing import TYPE_CHECKING, Any, NamedTuple

from shardway.aws.options import Credentials
from shardway.errors import CredentialsError, OptionError, ShardwayError
from shardway.shown import one_line, without_password

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from shardway.aws.options import ConnectionOptions

log = logging.getLogger("shardway.aws")

REASON_CHARACTERS_MAX = 500

LOOKED_AT = (
    "the environment (AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY), the shared files (~/.aws/credentials and "
    "~/.aws/config: keys, roles, single sign-on, credential processes), web identity tokens, "
    "the container's and the instance's metadata"
)


_PRIVATE_CHANGED = (ImportError, AttributeError, TypeError)
"""What is raised where a version of botocore has changed what its own pages call private: the endpoint rules, and the
provider of configured endpoints. Its clients are public, and answer in their place.
"""


class Rule(NamedTuple):
    """The answer of the SDK's endpoint rules."""

    url: str
    signing_region: str | None
    signing_name: str | None


class Sdk:
    """Looks things up for one profile. Threads may share it."""

    def __init__(self, profile: str | None = None, *, ca_bundle: str | None = None) -> None:
        """``ca_bundle``: the CAs of the SDK's own calls (STS, single sign-on) too, in place of the configured ones."""
        self._profile = profile
        self._given_bundle = ca_bundle
        self._lock = threading.Lock()
        self._session: Any = None
        self._providers: dict[str, Any] = {}

    def session(self) -> Any:
        """Return the botocore session, made once. Raises `CredentialsError` for a profile that does not exist."""
        with self._lock:
            if self._session is None:
                self._session = self._new_session()
            return self._session

    def region(self) -> str | None:
        """Return AWS_REGION, as the AWS SDKs for Java, Go and JavaScript do; else AWS_DEFAULT_REGION or the profile's
        region, as the one for Python does. That two variables differ is logged once.
        """
        first, second = os.environ.get("AWS_REGION"), os.environ.get("AWS_DEFAULT_REGION")
        if first and second and first != second:
            _tell_regions(first, second)
        return first or second or self._setting("region") or None

    def ca_bundle(self) -> str | None:
        """Return AWS_CA_BUNDLE, or the profile's ``ca_bundle``. Where there is no configuration file, nothing is
        imported.
        """
        if bundle := os.environ.get("AWS_CA_BUNDLE"):
            return bundle
        if self._session is None and not os.path.exists(os.path.expanduser(_config_file())):
            return None
        return self._setting("ca_bundle") or None

    def use_fips(self) -> bool:
        """Return AWS_USE_FIPS_ENDPOINT, or the profile's ``use_fips_endpoint``."""
        return bool(self._setting("use_fips_endpoint"))

    def use_dualstack(self) -> bool:
        """Return AWS_USE_DUALSTACK_ENDPOINT, or the profile's ``use_dualstack_endpoint``."""
        return bool(self._setting("use_dualstack_endpoint"))

    def configured_endpoint(self, service: str) -> str | None:
        """Return the first that is set: AWS_ENDPOINT_URL_<SERVICE>, AWS_ENDPOINT_URL, the profile's services section,
        its ``endpoint_url``.

        Return None when AWS_IGNORE_CONFIGURED_ENDPOINT_URLS (or the profile) says to ignore them.
        """
        session = self.session()
        if self._setting("ignore_configured_endpoint_urls"):
            return None
        with _as_our_error(f"the endpoint of {service} cannot be found in the AWS configuration{self._of_profile()}"):
            try:
                from botocore.configprovider import ConfiguredEndpointProvider

                url = ConfiguredEndpointProvider(
                    full_config=session.full_config, scoped_config=session.get_scoped_config(), client_name=service
                ).provide()
            except _PRIVATE_CHANGED:
                url = self._client_url(service, "us-east-1")
                if url == self._client_url(service, "us-east-1", ignore_configured_endpoint_urls=True):
                    return None
        return str(url) if url else None

    def endpoint_rule(self, service: str, parameters: Mapping[str, Any]) -> Rule:
        """Ask the service's endpoint rules (partitions, FIPS, endpoints by account). Parameters have the names of
        botocore's data.
        """
        with _as_our_error(f"no endpoint of {service} for {without_password(str(dict(parameters)))}"):
            try:
                endpoint = self._provider(service).resolve_endpoint(**parameters)
                scheme: dict[str, str] = next(iter(endpoint.properties.get("authSchemes", ())), {})
                return Rule(endpoint.url, scheme.get("signingRegion"), scheme.get("signingName"))
            except _PRIVATE_CHANGED:
                return self._rule_of_client(service, parameters)

    def _rule_of_client(self, service: str, parameters: Mapping[str, Any]) -> Rule:
        """Return where a client of botocore would call. It is asked for the region's endpoint: that of the account in
        an ARN is only known to a call.
        """
        _tell_private_changed()
        url = self._client_url(
            service,
            parameters["Region"],
            parameters.get("Endpoint"),
            use_fips_endpoint=parameters["UseFIPS"],
            use_dualstack_endpoint=parameters["UseDualStack"],
        )
        return Rule(url, None, None)

    def _client_url(self, service: str, region: str, endpoint_url: str | None = None, **settings: bool) -> str:
        from botocore.config import Config

        client = self.session().create_client(
            service,
            region_name=region,
            endpoint_url=endpoint_url,
            config=Config(**settings),
            aws_access_key_id="none",  # else the client would ask the whole chain of credentials
            aws_secret_access_key="none",  # noqa: S106 - nothing is called
        )
        url: str = client.meta.endpoint_url
        client.close()
        return url

    def regions(self) -> tuple[frozenset[str], tuple[str, ...]]:
        """Return the regions that the SDK knows, of all partitions, and the forms (regular expressions) of others."""
        loader = self.session().get_component("data_loader")
        with _as_our_error("the AWS SDK's list of regions cannot be read"):
            partitions = loader.load_data("partitions")["partitions"]
            names = frozenset(name for one in partitions for name in one["regions"] if not name.endswith("-global"))
        return names, tuple(one["regionRegex"] for one in partitions)

    def credentials(self, *, refresh: bool = False, region: str | None = None) -> Credentials:
        """Ask the credential chain. ``refresh`` reads files and environment again and asks each provider again.
        ``region`` is where a role of the profile is assumed, and single sign-on is not: that has a region of its own.

        Raises `CredentialsError` when no provider has any, or when the one that should have them fails.
        """
        if refresh:
            with self._lock:
                self._session = None
        with _as_our_error(f"the AWS credentials{self._of_profile()} cannot be loaded", CredentialsError):
            session = self.session()
            if region is not None:
                # Without it the SDK's own STS client knows no region that was given in code, or as AWS_REGION, and asks
                # the global endpoint of the partition "aws", which no credentials of China or GovCloud are known to.
                session.set_config_variable("region", region)
            loaded = _credentials_in(session)
        if loaded is None:
            raise CredentialsError(self._nothing_found())
        return loaded

    def _new_session(self) -> Any:
        import botocore.session

        with _as_our_error("the AWS configuration cannot be used", CredentialsError):
            session = botocore.session.Session(profile=self._profile)
            files = ", ".join(str(session.get_config_variable(name)) for name in ("config_file", "credentials_file"))
        with _as_our_error("the AWS configuration cannot be used", CredentialsError, f" (read from {files})"):
            profile = session.get_scoped_config()
        if not os.environ.get("AWS_STS_REGIONAL_ENDPOINTS") and "sts_regional_endpoints" not in profile:
            session.set_config_variable("sts_regional_endpoints", "regional")  # older versions prefer us-east-1
        if self._given_bundle is not None:
            session.set_config_variable("ca_bundle", self._given_bundle)
        return session

    def _setting(self, name: str) -> Any:
        """Return a variable of the SDK's configuration, of whatever type it has."""
        session = self.session()
        with _as_our_error(f"{name} cannot be read from the AWS configuration{self._of_profile()}"):
            return session.get_config_variable(name)

    def _provider(self, service: str) -> Any:
        from botocore.endpoint_provider import EndpointProvider
        from botocore.exceptions import UnknownServiceError

        session = self.session()
        with self._lock:
            provider = self._providers.get(service)
            if provider is None:
                loader = session.get_component("data_loader")
                try:
                    rules = loader.load_service_model(service, "endpoint-rule-set-1")
                except UnknownServiceError as error:
                    raise OptionError(f"the AWS SDK knows no service {service!r}") from error
                provider = EndpointProvider(rules, loader.load_data("partitions"))
                self._providers[service] = provider
            return provider

    def _of_profile(self) -> str:
        profile = self._profile or os.environ.get("AWS_PROFILE") or os.environ.get("AWS_DEFAULT_PROFILE")
        return f" of profile {profile!r}" if profile else ""

    def _nothing_found(self) -> str:
        skipped = ""
        if os.environ.get("AWS_EC2_METADATA_DISABLED", "").lower() == "true":
            skipped = " (the instance's are switched off by AWS_EC2_METADATA_DISABLED)"
        return (
            f"no AWS credentials{self._of_profile()} were found. Looked at {LOOKED_AT}{skipped}. "
            "Set the two variables, name a profile that has credentials, or run where a role is attached"
        )


def credentials_of_session(session: Any) -> Credentials:
    """Return the credentials that a session of boto3 or botocore has now; it renews them itself. Raises
    CredentialsError. This may block.
    """
    with _as_our_error("the credentials of the session that was given cannot be loaded", CredentialsError):
        loaded = _credentials_in(session)
    if loaded is None:
        raise CredentialsError(
            "the session that was given as credentials has none: give its keys or a profile where it is made, or leave "
            "credentials out, so that the SDK's own chain is asked"
        )
    return loaded


def region_of_session(session: Any) -> str | None:
    """Return the region of a session of boto3 or botocore; None for anything else."""
    region = getattr(session, "region_name", None)
    if region is None and hasattr(session, "get_config_variable"):
        region = session.get_config_variable("region")
    return region if isinstance(region, str) else None


def _credentials_in(session: Any) -> Credentials | None:
    found = session.get_credentials()
    frozen = found.get_frozen_credentials() if found is not None else None
    if frozen is None or not frozen.access_key or not frozen.secret_key:
        return None
    expiry = getattr(found, "_expiry_time", None)
    return Credentials(
        access_key_id=frozen.access_key,
        secret_access_key=frozen.secret_key,
        session_token=frozen.token or None,
        expires_at_s=expiry.timestamp() if expiry is not None else None,
    )


def _config_file() -> str:
    return os.environ.get("AWS_CONFIG_FILE") or os.path.join("~", ".aws", "config")


@functools.lru_cache(maxsize=1)  # so that it is logged once
def _tell_private_changed() -> None:
    import botocore

    log.warning(
        "botocore %s has changed how endpoints are found: its clients are asked for them, and streams by ARN are "
        "called at the endpoint of their region, not of their account",
        botocore.__version__,
    )


@functools.lru_cache(maxsize=8)  # so that it is logged once
def _tell_regions(first: str, second: str) -> None:
    log.warning(
        "AWS_REGION is %s and AWS_DEFAULT_REGION is %s: AWS_REGION is used. Unset one of them, or give the region",
        one_line(first),
        one_line(second),
    )


@contextlib.contextmanager
def _as_our_error(what: str, kind: type[ShardwayError] = OptionError, where: str = "") -> Iterator[None]:
    """Turn whatever the SDK raises into an error of ours that says what failed, and names what was odd.

    Its own errors are only a part of it: providers also let through what the service answered (ClientError), what a
    file or a process gave (JSONDecodeError, FileNotFoundError, PermissionError, UnicodeDecodeError, KeyError), and what
    an odd value did to a conversion.
    """
    try:
        yield
    except ShardwayError:
        raise
    except Exception as error:
        from botocore.exceptions import BotoCoreError, ClientError

        known = isinstance(error, BotoCoreError | ClientError | RuntimeError) and str(error)
        text = str(error) if known else f"{type(error).__name__}: {error}"
        raise kind(f"{what}: {one_line(without_password(text[:REASON_CHARACTERS_MAX]))}{where}") from error


def fixed_credentials(options: ConnectionOptions) -> Credentials | None:
    """Return the credentials that stay as they are for as long as the process runs: those that the options have, or
    the environment. None: a source is asked for them, which may have others.
    """
    if options.credentials is None:
        return environment_credentials(options.profile)
    return options.credentials if isinstance(options.credentials, Credentials) else None


def environment_credentials(profile: str | None) -> Credentials | None:
    """Return the credentials in the environment, when they come first in the SDK's chain: no profile was named in
    code.

    This is a shortcut that spares importing botocore; it finds nothing that the chain would not find.
    """
    environ = os.environ
    if profile is not None or environ.get("AWS_CREDENTIAL_EXPIRATION"):
        return None
    key_id, secret = environ.get("AWS_ACCESS_KEY_ID"), environ.get("AWS_SECRET_ACCESS_KEY")
    if not key_id or not secret:
        return None
    token = environ.get("AWS_SECURITY_TOKEN") or environ.get("AWS_SESSION_TOKEN")
    return Credentials(key_id, secret, token or None)
