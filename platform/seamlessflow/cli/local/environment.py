"""The environment variables of each kind of process.

Takes the installation's folder, addresses and secret, and our own environment. Returns one environment for the planes
and a smaller one for machines. Invariant: nothing that a machine runs, including agents, inherits the address of the
database or of the live events, or the installation's secret.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from seamlessflow.cli.local.services import ServiceUrls
from seamlessflow.cli.local.state import Home

SETTINGS_MODULE = "seamlessflow.control_plane.settings"
NVIDIA_CONTROL_DEVICE = Path("/dev/nvidiactl")
NOT_FOR_MACHINES = (
    "DATABASE_URL",
    "GATEWAY_DATABASE_URL",
    "EVENTS_URL",
    "BACKGROUND_BROKER_URL",
    "SEAMLESSFLOW_SECRET_KEY",
    "SEAMLESSFLOW_JOIN_TOKEN",
    "SEAMLESSFLOW_TOKEN",
    "PGPASSWORD",
    "DJANGO_SETTINGS_MODULE",
)
# One thread per process: there are few cores for all processes, and a spinning thread starves its neighbours.
QUIET_LIBRARIES = {
    "OMP_NUM_THREADS": "1",
    "OMP_WAIT_POLICY": "PASSIVE",
    "TOKENIZERS_PARALLELISM": "false",
    "HF_HUB_OFFLINE": "1",
    "NOSETPS": "1",  # Celery's processes keep the command line that they were started with
    "PYTHONUNBUFFERED": "1",
}


@dataclass(frozen=True, slots=True)
class Addresses:
    web_url: str
    gateway_url: str  # which all clients use; any gateway passes on what another one serves
    more_gateway_urls: tuple[str, ...] = ()

    @property
    def gateway_urls(self) -> tuple[str, ...]:
        return (self.gateway_url, *self.more_gateway_urls)


def machine_environment(
    home: Home, urls: ServiceUrls, addresses: Addresses, *, environ: Mapping[str, str]
) -> dict[str, str]:
    """Return the environment of supervisors and, through them, of engines, trainers and agents."""
    inherited = {name: value for name, value in environ.items() if name not in NOT_FOR_MACHINES}
    accelerator = {} if NVIDIA_CONTROL_DEVICE.exists() else {"DS_ACCELERATOR": "cpu"}
    return (
        inherited
        | QUIET_LIBRARIES
        | accelerator
        | {
            "BROKER_URL": urls.broker_url,
            "SEAMLESSFLOW_HOME": str(home.root),
            "SEAMLESSFLOW_WEB_URL": addresses.web_url,
            "SEAMLESSFLOW_GATEWAY_URL": addresses.gateway_url,
            "ARTIFACT_ROOT": environ.get("ARTIFACT_ROOT") or home.artifacts.as_uri(),
            "MODEL_ROOTS": _model_roots(home, environ),
        }
    )


def plane_environment(
    home: Home, urls: ServiceUrls, addresses: Addresses, *, environ: Mapping[str, str]
) -> dict[str, str]:
    """Return the environment of the web, the scheduler, background work and the gateway."""
    secret_key = environ.get("SEAMLESSFLOW_SECRET_KEY") or home.secret("secret-key")
    return (
        dict(environ)
        | machine_environment(home, urls, addresses, environ=environ)
        | urls.as_env()
        | {"SEAMLESSFLOW_SECRET_KEY": secret_key, "DJANGO_SETTINGS_MODULE": SETTINGS_MODULE}
    )


def gateway_environment(planes: Mapping[str, str], *, database_url: str) -> dict[str, str]:
    """Return the environment of the planes, but with the gateways' own database address as the only one."""
    kept = {name: value for name, value in planes.items() if name != "GATEWAY_DATABASE_URL"}
    return kept | {"DATABASE_URL": database_url}


def _model_roots(home: Home, environ: Mapping[str, str]) -> str:
    """Return the installation's own model folder, followed by those that the environment names."""
    named = environ.get("MODEL_ROOTS", "").split(os.pathsep)
    return os.pathsep.join(dict.fromkeys([str(home.models), *filter(None, named)]))
