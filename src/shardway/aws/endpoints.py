"""Say where a call goes, and for which region and service it is signed.

The order is: the URL in the options; AWS_ENDPOINT_URL_<SERVICE>; AWS_ENDPOINT_URL; the profile's services section and
``endpoint_url`` (the last four unless AWS_IGNORE_CONFIGURED_ENDPOINT_URLS); the service's endpoint rules, which know
partitions, FIPS, dual stack and Kinesis's endpoints by account. See "Service-specific endpoints" in the AWS SDKs and
Tools reference guide.
"""

from __future__ import annotations

import difflib
import functools
import logging
import re
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

from shardway.aws.options import region_fault, url_fault
from shardway.aws.sdk import region_of_session
from shardway.errors import OptionError

if TYPE_CHECKING:
    from shardway.aws.options import ConnectionOptions
    from shardway.aws.sdk import Sdk

log = logging.getLogger("shardway.aws")

DATA_OPERATIONS = frozenset({"GetRecords", "GetShardIterator", "PutRecord", "PutRecords", "SubscribeToShard"})
"""The operations of Kinesis's data plane, which has endpoints of its own for streams named by ARN; all others are of
its control plane.
"""


class Endpoint(NamedTuple):
    """A resolved endpoint. ``path`` begins with a slash; ``host`` is the Host header as HTTP clients send
    it.
    """

    url: str
    host: str
    path: str
    signing_region: str
    signing_name: str


def arn_region(arn: str) -> str | None:
    """Return the region in an ARN: ``arn:aws:kinesis:eu-west-1:123456789012:stream/x`` → ``eu-west-1``."""
    parts = arn.split(":", 5)
    return parts[3] or None if len(parts) == 6 and parts[0] == "arn" else None


def resolve_region(options: ConnectionOptions, sdk: Sdk) -> str:
    """Return the region of the options, or the SDK's. This may block."""
    region = options.region or region_of_session(options.credentials) or sdk.region()
    if not region:
        raise OptionError(
            "no AWS region: give the region option, set AWS_REGION or AWS_DEFAULT_REGION, or a region in the "
            f"profile{f' {options.profile!r}' if options.profile else ''} (~/.aws/config)"
        )
    if fault := region_fault(region):
        raise OptionError(fault)
    return region


def resolve_endpoint(
    options: ConnectionOptions,
    sdk: Sdk,
    service: str,
    region: str,
    *,
    operation: str = "",
    stream_arn: str | None = None,
) -> Endpoint:
    """Find the endpoint of one service (botocore's name of it). This may block: files are read."""
    given = options.sts_endpoint_url if service == "sts" else options.endpoint_url
    if given is not None:
        return _endpoint(given, region, service)
    configured = sdk.configured_endpoint(service)
    use_fips = sdk.use_fips() if options.use_fips is None else options.use_fips
    parameters: dict[str, object] = {
        "Region": region,
        "UseFIPS": use_fips,
        "UseDualStack": sdk.use_dualstack(),
    }
    if configured is not None:
        parameters["Endpoint"] = configured
    else:
        _check_region(region, sdk)
    if service == "kinesis" and stream_arn is not None:
        parameters |= {
            "StreamARN": stream_arn,
            "OperationType": "data" if operation in DATA_OPERATIONS else "control",
        }
    rule = sdk.endpoint_rule(service, parameters)
    return _endpoint(rule.url, rule.signing_region or region, rule.signing_name or service)


def _check_region(region: str, sdk: Sdk) -> None:
    """Raise OptionError for a region that cannot be one. One that the SDK has not heard of may be new: of that a line
    of the log tells.
    """
    names, forms = sdk.regions()
    if region in names or not names:
        return
    near = difflib.get_close_matches(region, names, n=1)
    hint = f": is {near[0]!r} meant?" if near else " (they look like eu-west-1)"
    if not any(re.match(form, region) for form in forms):
        raise OptionError(f"{region!r} is no AWS region{hint}")
    _tell_unknown_region(region, hint)


@functools.lru_cache(maxsize=8)  # so that it is logged once
def _tell_unknown_region(region: str, hint: str) -> None:
    log.warning("the AWS SDK that is installed knows no region %r%s", region, hint)


def _endpoint(url: str, signing_region: str, signing_name: str) -> Endpoint:
    if fault := url_fault(url):
        raise OptionError(f"the endpoint URL {fault}")
    parts = urlsplit(url)
    assert parts.hostname is not None
    port = parts.port
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    if port is not None and port != {"http": 80, "https": 443}[parts.scheme]:
        host = f"{host}:{port}"
    path = parts.path or "/"
    return Endpoint(f"{parts.scheme}://{host}{path}", host, path, signing_region, signing_name)
