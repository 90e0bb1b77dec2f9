"""What tells an AWS SDK to use the local service."""

from __future__ import annotations


def environment(endpoint_url: str, region: str, ca_file: str | None = None) -> dict[str, str]:
    """Environment variables for a client of the service at this address. The credentials are made up."""
    variables = {
        "AWS_ENDPOINT_URL": endpoint_url,
        "AWS_REGION": region,
        "AWS_DEFAULT_REGION": region,
        "AWS_ACCESS_KEY_ID": "local",
        "AWS_SECRET_ACCESS_KEY": "local",
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    return variables if ca_file is None else variables | {"AWS_CA_BUNDLE": ca_file}
