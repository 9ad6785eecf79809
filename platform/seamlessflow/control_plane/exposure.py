"""Decides how the web process is exposed: hosts, origins, cookies, redirects, by the installation's mode.

Takes the environment and the address under which people reach the dashboard; returns one `Exposure`.
Invariant: where other machines reach the process, the secret is strong; in production, browsers use TLS unless the
address is this machine's own. A setting that would weaken it stops the process with the accepted values.
"""

from dataclasses import dataclass
from urllib.parse import urlsplit

from seamlessflow.control_plane import variables
from seamlessflow.core.protocol.exposure import (
    SECRET_ACCEPTED,
    Mode,
    is_loopback,
    secret_weakness,
)
from seamlessflow.runtime import plane_variables
from seamlessflow.runtime.variables import InvalidSetting, Reader

LOOPBACK_HOSTS = ["127.0.0.1", "localhost", "[::1]"]
ONE_YEAR_S = 365 * 24 * 3600
# Supervisors, probes and Prometheus use these over plain HTTP inside the installation's own network.
INTERNAL_PATHS = [r"^api/worker/", r"^healthz$", r"^metrics$"]


@dataclass(frozen=True, slots=True)
class Exposure:
    mode: Mode
    allowed_hosts: list[str]
    trusted_origins: list[str]
    is_https: bool
    redirects_to_https: bool
    hsts_s: int


def exposure_read(reader: Reader, *, web_url: str, secret_key: str) -> Exposure:
    """Read the exposure. Raises InvalidSetting."""
    mode = Mode(reader.read(plane_variables.MODE))
    parts = urlsplit(web_url)
    is_https = parts.scheme == "https"
    if mode is Mode.PRODUCTION:
        _check_production(reader, web_url=web_url)
    if mode is not Mode.LOCAL and (weakness := secret_weakness(secret_key)):
        raise InvalidSetting("SEAMLESSFLOW_SECRET_KEY", weakness, SECRET_ACCEPTED)
    hosts = reader.read(variables.ALLOWED_HOSTS)
    if mode is not Mode.LOCAL and "*" in hosts:
        raise InvalidSetting(
            "SEAMLESSFLOW_ALLOWED_HOSTS",
            ",".join(hosts),
            "names joined by ',', as web,seamlessflow.example.org",
        )
    return Exposure(
        mode=mode,
        # The address itself is always accepted, and so is loopback, from which health checks of containers come.
        allowed_hosts=list(dict.fromkeys([*hosts, str(parts.hostname), *LOOPBACK_HOSTS])),
        trusted_origins=[web_url, *reader.read(variables.TRUSTED_ORIGINS)],
        is_https=is_https,
        redirects_to_https=is_https and mode is Mode.PRODUCTION,
        hsts_s=ONE_YEAR_S if is_https and mode is Mode.PRODUCTION else 0,
    )


def _check_production(reader: Reader, *, web_url: str) -> None:
    for variable in (variables.WEB_URL, variables.GATEWAY_URL):
        if not reader.has(variable):  # no default: links and cookies depend on it
            raise InvalidSetting(variable.name, None, variable.accepted)
    parts = urlsplit(web_url)
    if parts.scheme != "https" and not is_loopback(str(parts.hostname)):
        raise InvalidSetting(
            "SEAMLESSFLOW_WEB_URL",
            web_url,
            "https://host[:port], with TLS ended by a proxy, or http://localhost[:port] for a trial on this machine",
        )
