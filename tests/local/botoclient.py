"""boto3 clients for the tests of the local service."""

from __future__ import annotations

from typing import Any

import boto3
from botocore.config import Config


def client_of(endpoint_url: str, service: str = "kinesis", region: str = "us-east-1", **settings: Any) -> Any:
    """A boto3 client that repeats nothing."""
    config = Config(
        retries={"total_max_attempts": 1}, read_timeout=60, user_agent_extra=settings.pop("user_agent", None)
    )
    return boto3.client(
        service,
        endpoint_url=endpoint_url,
        region_name=region,
        aws_access_key_id="local",
        aws_secret_access_key="local",
        config=config,
        **settings,
    )
