"""A local Kinesis in a container, or the one that runs already at SHARDWAY_ENDPOINT_URL."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

from testcontainers.core.container import DockerContainer
from testcontainers.core.wait_strategies import HttpWaitStrategy

IMAGE = os.environ.get("SHARDWAY_IMAGE", "OWNER/shardway-local:v0.3.0")
PORT = 4567


@contextmanager
def local_kinesis() -> Iterator[str]:
    """Yield its address."""
    if running := os.environ.get("SHARDWAY_ENDPOINT_URL"):
        yield running
        return
    container = DockerContainer(IMAGE).with_command("--stream orders:4").with_exposed_ports(PORT)
    with container.waiting_for(HttpWaitStrategy(PORT, "/_shardway/health")):
        yield f"http://{container.get_container_host_ip()}:{container.get_exposed_port(PORT)}"
