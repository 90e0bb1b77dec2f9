"""Options for reading and for writing: which stream it is, where it is, and with which credentials it is reached."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Annotated

from shardway.aws.options import ConnectionOptions
from shardway.model import StreamName
from shardway.spark.options.option import GivenOptions, Option
from shardway.spark.options.texts import parse_region, parse_url

_STREAM_NAME = re.compile(r"[A-Za-z0-9_.-]{1,128}")
_OF_A_ROLE = ("role_session_name", "role_external_id", "sts_endpoint_url")
"""The fields that say nothing without a role."""


class StreamOptions(GivenOptions, frozen=True, kw_only=True):
    """The stream and the way to it."""

    stream_name: Annotated[
        str | None, Option("string", "The stream's name. Either this or `streamARN` is required.")
    ] = None
    stream_arn: Annotated[
        str | None,
        Option(
            "string",
            "The stream's ARN. It may be one of another account, through a resource policy. It names the region too.",
            name="streamARN",
        ),
    ] = None
    region: Annotated[
        str | None,
        Option(
            "string",
            "The AWS region. It must agree with `streamARN`. Tasks use the region that the driver finds.",
            "the SDK's chain",
            parse_region,
        ),
    ] = None
    endpoint_url: Annotated[
        str | None,
        Option(
            "URL",
            "The address of Kinesis (a local one, a VPC endpoint). Without it, `AWS_ENDPOINT_URL_KINESIS` and its like "
            "count, for tasks too as the driver has them; then AWS's own address.",
            "the SDK's rules",
            parse_url,
        ),
    ] = None
    role_arn: Annotated[
        str | None,
        Option("ARN", "The role that the driver and the tasks assume. It is refreshed before it expires."),
    ] = None
    role_session_name: Annotated[str | None, Option("string", "The session name for `roleArn`.", "made up")] = None
    role_external_id: Annotated[str | None, Option("string", "The external id for `roleArn`.")] = None
    sts_endpoint_url: Annotated[
        str | None, Option("URL", "The address of STS, for `roleArn`.", "the SDK's rules", parse_url)
    ] = None

    @property
    def stream(self) -> StreamName:
        """The stream that is read or written."""
        return StreamName(name=self.stream_name, arn=self.stream_arn)

    def connection(self, tag: str) -> ConnectionOptions:
        """Return how AWS is reached; ``tag`` names the part that asks. There are no secrets in it: the driver and each
        executor have their own.
        """
        return ConnectionOptions(
            region=self.region or (self.stream_arn.split(":")[3] if self.stream_arn else None),
            endpoint_url=self.endpoint_url,
            role_arn=self.role_arn,
            role_session_name=self.role_session_name,
            role_external_id=self.role_external_id,
            sts_endpoint_url=self.sts_endpoint_url,
            user_agent_tag=tag,
        )

    def rules(self, given: Mapping[str, str]) -> Iterator[str]:
        """Yield what is wrong with the stream, and options of a role without one."""
        if self.role_arn is None and "role_arn" not in given:
            names = (given[field] for field in _OF_A_ROLE if field in given)
            yield from (f"{name} is given without roleArn: it has no meaning alone" for name in names)
        if self.stream_name and self.stream_arn:
            yield "streamName and streamARN contradict each other: give one of them"
        elif self.stream_arn is not None:
            yield from self._arn_faults(self.stream_arn)
        elif self.stream_name is None:
            yield "streamName (or streamARN) is required"
        elif self.stream_name.startswith("arn:"):
            yield "streamName holds an ARN: give it as streamARN"
        elif "," in self.stream_name:
            yield "streamName holds several names: a source reads one stream; read each, and join them with union"
        elif not _STREAM_NAME.fullmatch(self.stream_name):
            yield "streamName must be 1 to 128 letters, digits, _ . and -"

    def _arn_faults(self, arn: str) -> Iterator[str]:
        parts = arn.split(":")
        if len(parts) != 6 or parts[0] != "arn" or parts[2] != "kinesis" or not parts[5].startswith("stream/"):
            yield "streamARN must look like arn:aws:kinesis:eu-west-1:123456789012:stream/orders"
        elif self.region not in (None, parts[3]):
            yield f"region {self.region} contradicts streamARN, which is in {parts[3]}"
