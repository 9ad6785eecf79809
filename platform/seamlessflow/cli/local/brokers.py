"""Checks once, before anything is started, that the brokers named by the environment answer.

Takes the variables and their addresses; raises BrokerUnreachable, which names the variable. The processes handle later
outages themselves: a broker that dies stops no running process.
"""

import asyncio
from collections.abc import Mapping
from urllib.parse import urlsplit

from seamlessflow.cli.local.failure import InstallationFailed

TIMEOUT_S = 5.0
DEFAULT_PORTS = {"redis": 6379, "rediss": 6379, "valkey": 6379, "amqp": 5672, "amqps": 5671}
BROKER_VARIABLES = ("BROKER_URL", "BACKGROUND_BROKER_URL", "EVENTS_URL")


class BrokerUnreachable(InstallationFailed):
    """A broker does not answer at its address."""


async def external_brokers_answer(environ: Mapping[str, str]) -> None:
    """Connect to each broker that the environment names. Raises BrokerUnreachable for the first
    that does not answer."""
    for variable in BROKER_VARIABLES:
        if url := environ.get(variable, ""):
            await _connect(variable, url)


async def _connect(variable: str, url: str) -> None:
    split = urlsplit(url)
    try:
        async with asyncio.timeout(TIMEOUT_S):
            if split.scheme in ("unix", "redis+socket"):
                _, writer = await asyncio.open_unix_connection(split.path)
            else:
                port = split.port or DEFAULT_PORTS.get(split.scheme, 6379)
                _, writer = await asyncio.open_connection(split.hostname, port)
    except (OSError, TimeoutError) as error:
        where = split.path if split.hostname is None else f"{split.hostname}:{split.port}"
        reason = str(error) or type(error).__name__
        raise BrokerUnreachable(
            f"The broker named by {variable} ({where}) does not answer: {reason}"
        ) from error
    writer.close()
