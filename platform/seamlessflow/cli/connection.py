"""Finds the platform: from flags, the environment, or the installation of this folder.

`SEAMLESSFLOW_WEB_URL` and `SEAMLESSFLOW_TOKEN` name a remote platform; otherwise the state folder's `run.json` and
`cli.token` are used.
"""

import os

from seamlessflow.cli.local.state import find_home
from seamlessflow.cli.platform import client_of
from seamlessflow.client import Client


def connect() -> Client:
    """A client of the platform in reach. Raises CliError saying what to do when there is none."""
    url, token = os.environ.get("SEAMLESSFLOW_WEB_URL"), os.environ.get("SEAMLESSFLOW_TOKEN")
    if url and token:
        return Client(url, token)
    return client_of(find_home())
