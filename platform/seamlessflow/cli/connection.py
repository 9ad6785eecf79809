"""Finds the platform: from flags, the environment, or the installation in this folder.

`SEAMLESSFLOW_WEB_URL` and `SEAMLESSFLOW_TOKEN` name a platform. A value that is not set comes from the state folder's
`run.json` and `cli.token`. Invariant: the token of this folder's installation is sent to that installation only.
"""

import os
from urllib.parse import urlsplit

from seamlessflow.cli.errors import CliError
from seamlessflow.cli.local.state import Home, find_home
from seamlessflow.client import Client

URL_VARIABLE = "SEAMLESSFLOW_WEB_URL"
TOKEN_VARIABLE = "SEAMLESSFLOW_TOKEN"
LOOPBACK = ("localhost", "127.0.0.1", "::1")


def connect() -> Client:
    """Return a client of the platform that the environment or this folder names.

    Raises CliError, which says what to do, if there is none, and ApiError for an invalid address or token.
    """
    url, token = (os.environ.get(name, "").strip() for name in (URL_VARIABLE, TOKEN_VARIABLE))
    if url and token:
        return Client(url, token)
    home = find_home()
    run = home.read_run()
    if url and (run is None or not _is_same(url, run.web_url)):
        raise CliError(
            f"{URL_VARIABLE} is set, but {TOKEN_VARIABLE} is not, and that platform does not run in this folder: "
            "create a token on the Tokens page of its dashboard, or with `seamlessflow tokens create NAME --scopes "
            "read,submit` where it runs, and set it",
            exit_code=2,
        )
    if token and run is None:
        raise CliError(
            f"{TOKEN_VARIABLE} is set, but {URL_VARIABLE} is not, and no platform is running in {home.root}: set "
            f"{URL_VARIABLE} to the address of the dashboard",
            exit_code=2,
        )
    if token and run is not None:
        return Client(run.web_url, token)
    return client_of(home)


def _is_same(url: str, local: str) -> bool:
    """Return whether an address on this machine is that of the installation in this folder."""
    try:
        given, own = urlsplit(url), urlsplit(local)
        is_here = given.hostname == own.hostname or given.hostname in LOOPBACK
        return is_here and given.port == own.port and given.scheme == own.scheme
    except ValueError:
        return False


def client_of(home: Home) -> Client:
    """Return the REST client of the installation in `home`. Raises CliError if it is not running."""
    run = home.read_run()
    if run is None:
        raise CliError(
            f"no platform is running in {home.root}; if one runs in another folder, set SEAMLESSFLOW_HOME to that "
            f"folder's .seamlessflow; for one on another host, set {URL_VARIABLE} and {TOKEN_VARIABLE}; "
            "`seamlessflow up` starts one here"
        )
    return Client(run.web_url, home.cli_token_file.read_text().strip())
