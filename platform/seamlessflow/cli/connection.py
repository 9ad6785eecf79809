"""Finds the platform: from flags, the environment, or the installation of this folder.

`SEAMLESSFLOW_WEB_URL` and `SEAMLESSFLOW_TOKEN` name a remote platform; otherwise the state folder's `run.json` and
`cli.token` are used.
"""

import os

from seamlessflow.cli.errors import CliError
from seamlessflow.cli.local.state import Home, find_home
from seamlessflow.client import Client

CLI_TOKEN_FILE = "cli.token"
URL_VARIABLE = "SEAMLESSFLOW_WEB_URL"
TOKEN_VARIABLE = "SEAMLESSFLOW_TOKEN"


def connect() -> Client:
    """A client of the platform in reach.

    Raises CliError saying what to do when there is none, ApiError for an address or token that cannot be one.
    """
    url, token = (os.environ.get(name, "").strip() for name in (URL_VARIABLE, TOKEN_VARIABLE))
    if bool(url) != bool(token):
        present, absent = (URL_VARIABLE, TOKEN_VARIABLE) if url else (TOKEN_VARIABLE, URL_VARIABLE)
        raise CliError(
            f"{present} is set, but {absent} is not: set both for a platform elsewhere, or neither for the one "
            "of this folder",
            exit_code=2,
        )
    return Client(url, token) if url else client_of(find_home())


def client_of(home: Home) -> Client:
    """The REST client of the installation in `home`. Raises CliError when it is not up."""
    run = home.read_run()
    if run is None:
        raise CliError(
            "no platform is running here; start one with `seamlessflow up`, or name one elsewhere by "
            f"{URL_VARIABLE} and {TOKEN_VARIABLE}"
        )
    return Client(run.web_url, (home.root / CLI_TOKEN_FILE).read_text().strip())
