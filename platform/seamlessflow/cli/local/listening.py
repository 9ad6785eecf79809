"""Where an installation listens: on loopback, or on an address of a private network, from which other hosts join it.

Enters: the address that a person named. Leaves: what planes and machines get in their environment for it, and what to
say about it. Invariants: other hosts reach an installation only if a person asked for it; it then has a join token,
which only its owner can read.
"""

import ipaddress
import os
import socket
from collections.abc import Mapping
from pathlib import Path

from seamlessflow.cli.errors import CliError
from seamlessflow.cli.local.ports import LOOPBACK
from seamlessflow.cli.local.state import Home
from seamlessflow.core.protocol.exposure import MODE_VARIABLE, Mode

JOIN_TOKEN_VARIABLE = "SEAMLESSFLOW_JOIN_TOKEN"


def listening_address(text: str) -> str:
    """Return an address of this host for other hosts. Raises CliError."""
    try:
        address = ipaddress.IPv4Address("127.0.0.1" if text == "localhost" else text)
    except ValueError as error:
        raise CliError(f"--listen: {text!r} is not an IPv4 address, such as 10.1.2.3", exit_code=2) from error
    if address.is_unspecified:
        raise CliError(
            f"--listen: {text} stands for all addresses, and machines need one that they can reach; name one of "
            "this host, such as 10.1.2.3",
            exit_code=2,
        )
    with socket.socket() as trial:
        try:
            trial.bind((str(address), 0))
        except OSError as error:
            raise CliError(f"--listen: {text} is not an address of this host", exit_code=2) from error
    return str(address)


def plane_listening(home: Home, host: str, *, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables with which planes listen on `host`; none for the usual loopback address."""
    if host == LOOPBACK:
        return {}
    token = environ.get(JOIN_TOKEN_VARIABLE) or join_token_file(home).read_text()
    return {MODE_VARIABLE: environ.get(MODE_VARIABLE) or Mode.PRIVATE, JOIN_TOKEN_VARIABLE: token}


def machine_listening(host: str, *, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variable with which the engines and trainers of this host are reached by other hosts."""
    variable = "SEAMLESSFLOW_LISTEN_HOST"
    return {} if host == LOOPBACK or environ.get(variable) else {variable: host}


def join_token_file(home: Home) -> Path:
    """Return the file with the installation's join token, which is made on the first call."""
    home.secret("join-token")
    return home.root / "join-token.secret"


def listening_said(home: Home, web_url: str, *, environ: Mapping[str, str] = os.environ) -> str:
    """Say how another host joins, and what travels in clear text."""
    token = (
        f"the value of {JOIN_TOKEN_VARIABLE}" if environ.get(JOIN_TOKEN_VARIABLE) else join_token_file(home)
    )
    return (
        f"joining    on another host: {JOIN_TOKEN_VARIABLE}=… seamlessflow worker --name NAME --tags rollout,train "
        f"--control-plane-url {web_url}  (join token: {token})\n"
        "network    tokens and prompts travel unencrypted: listen only in a network that you trust "
        "(docs/operations.md, A second machine)"
    )
