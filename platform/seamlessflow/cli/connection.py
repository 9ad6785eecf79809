"""Finds the platform: from flags, the environment, or the installation in this folder.

`SEAMLESSFLOW_WEB_URL` and `SEAMLESSFLOW_TOKEN` name a remote platform; otherwise the state folder's
`run.json` and `cli.token` are used.
"""

import os

from seamlessflow.cli.errors import CliError
from seamlessflow.cli.local.state import Home, find_home
from seamlessflow.client import Client

URL_VARIABLE = "SEAMLESSFLOW_WEB_URL"
TOKEN_VARIABLE = "SEAMLESSFLOW_TOKEN"


def connect() -> Client:
    """Return a client of the platform that the environment or this folder names.

    Raises CliError, which says what to do, if there is none, and ApiError for an invalid address or token.
    """
    url, token = (os.environ.get(name, "").strip() for name in (URL_VARIABLE, TOKEN_VARIABLE))
    if bool(url) != bool(token):
        present, absent = (URL_VARIABLE, TOKEN_VARIABLE) if url else (TOKEN_VARIABLE, URL_VARIABLE)
        raise CliError(
            f"{present} is set, but {absent} is not: set both for a remote platform, or neither for the one in "
            "this folder",
            exit_code=2,
        )
    return Client(url, token) if url else client_of(find_home())


def client_of(home: Home) -> Client:
    """Return the REST client of the installation in `home`. Raises CliError if it is not running."""
    run = home.read_run()
    if run is None:
        raise CliError(
            "no platform is running here; start one with `seamlessflow up`, or set "
            f"{URL_VARIABLE} and {TOKEN_VARIABLE} to use a remote one"
        )
    return Client(run.web_url, home.cli_token_file.read_text().strip())
