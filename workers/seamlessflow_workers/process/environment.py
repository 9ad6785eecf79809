"""The environment of child processes: variables that they get, and those that are kept from them.

It takes the variables that a child's command adds and the number of its cores, and returns all its variables.
Invariants: no child gets a secret of the supervisor; only a trainer gets what opens the artifact store; a program that
a job brings gets none of the operator's variables but those on a list.
"""

import os
from collections.abc import Mapping
from pathlib import Path

import seamlessflow.core
import seamlessflow_workers
from seamlessflow.runtime.artifacts.opening import CREDENTIAL_VARIABLES

SECRET_VARIABLES = (
    "BACKGROUND_BROKER_URL", "BROKER_URL", "DATABASE_URL", "EVENTS_URL", "PGPASSWORD", "SECRET_KEY",
    "SEAMLESSFLOW_JOIN_TOKEN", "SEAMLESSFLOW_SECRET_KEY", "SEAMLESSFLOW_TOKEN",
    *CREDENTIAL_VARIABLES,
)  # fmt: skip
# A trainer takes the GPU that it sees, so on a machine that computes on its CPU it must see none. DeepSpeed gets it in
# both cases: a device that it would find by itself, or in our own environment, may not be the machine's device.
DEVICE_ENVIRONMENT = {
    "cpu": {"CUDA_VISIBLE_DEVICES": "", "DS_ACCELERATOR": "cpu"},
    "cuda": {"DS_ACCELERATOR": "cuda"},
}
EPISODES_VARIABLE = "SEAMLESSFLOW_EPISODES_FOLDER"  # where agents unpack what one episode needs
# What a program needs of its host: where things are, its language and zone, its threads, and whom it trusts.
AGENT_VARIABLES = frozenset(
    {
        "HOME", "LANG", "LANGUAGE", "LD_LIBRARY_PATH", "LOGNAME", "PATH", "PYTHONPATH", "PYTHONUNBUFFERED", "SHELL",
        "TERM", "TMPDIR", "TZ", "USER", "VIRTUAL_ENV", "OMP_NUM_THREADS", "OMP_WAIT_POLICY", "CURL_CA_BUNDLE",
        "NODE_EXTRA_CA_CERTS", "REQUESTS_CA_BUNDLE", "SSL_CERT_DIR", "SSL_CERT_FILE",
    }
)  # fmt: skip
LOCALE_PREFIX = "LC_"
# Names, separated by commas, that an operator adds to the list: those of a proxy, for example.
MORE_AGENT_VARIABLES = "SEAMLESSFLOW_AGENT_VARIABLES"


def child_environment(extra: Mapping[str, str], *, num_cores: int) -> dict[str, str]:
    """Return all variables of a child: ours without secrets, those of every child, then `extra`, which wins."""
    inherited = {name: value for name, value in os.environ.items() if name not in SECRET_VARIABLES}
    paths = [*import_roots(), *filter(None, [os.environ.get("PYTHONPATH")])]
    if paths:
        inherited["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(paths))
    threads = {"OMP_NUM_THREADS": str(num_cores), "OMP_WAIT_POLICY": "PASSIVE", "PYTHONUNBUFFERED": "1"}
    return {**inherited, **threads, **extra}


def agent_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return those of our variables that a program of a job may have."""
    added = {name.strip() for name in environ.get(MORE_AGENT_VARIABLES, "").split(",")} - set(
        SECRET_VARIABLES
    )
    return {
        name: value
        for name, value in environ.items()
        if name in AGENT_VARIABLES or name in added or name.startswith(LOCALE_PREFIX)
    }


def store_environment() -> dict[str, str]:
    """Return what opens the artifact store, for a child that writes to it."""
    return {name: os.environ[name] for name in CREDENTIAL_VARIABLES if name in os.environ}


def import_roots() -> list[str]:
    """Return our packages' folders in a source tree, for children under another interpreter; none if installed."""
    packages = (seamlessflow.core, seamlessflow_workers)
    folders = [Path(package.__path__[0]) for package in packages]
    roots = [folders[0].parent.parent, folders[1].parent]
    return [str(root) for root in roots if root.name not in ("site-packages", "dist-packages")]
