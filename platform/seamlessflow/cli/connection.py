"""Finds the platform: from flags, the environment, or the installation of this folder.

`SEAMLESSFLOW_WEB_URL` and `SEAMLESSFLOW_TOKEN` name a remote platform; otherwise the state folder's `run.json` and
`cli.token` are used.
"""

import os

from seamlessflow.cli.errors import CliError
from seamlessflow.cli.local.state import Home, find_home
from seamlessflow.client import Client

CLI_TOKEN_FILE = "cli.token"


def connect() -> Client:
    """A client of the platform in reach. Raises CliError saying what to do when there is none."""
    url, token = os.environ.get("SEAMLESSFLOW_WEB_URL"), os.environ.get("SEAMLESSFLOW_TOKEN")
    if url and token:
        return Client(url, token)
    return client_of(find_home())


def client_of(home: Home) -> Client:
    """The REST client of the installation in `home`. Raises CliError when it is not up."""
    run = home.read_run()
    if run is None:
        raise CliError("no platform is running here; start one with `seamlessflow up`")
    return Client(run.web_url, (home.root / CLI_TOKEN_FILE).read_text().strip())
