"""How a host joins a remote platform as a machine, with the installation's join token.

`machine_join` takes a name, tags, the control plane's address and the secret SEAMLESSFLOW_JOIN_TOKEN. It leaves the
machine's own token in a file that only this user can read. The control plane may still be starting, and another host of
this name may have stopped a moment ago; joining waits for both. A token stored earlier proves that this host is that
machine.
"""

import time
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from pathlib import Path

import click
import httpx
import msgspec

from seamlessflow.cli.errors import CliError
from seamlessflow.cli.local.listening import JOIN_TOKEN_VARIABLE
from seamlessflow.cli.local.state import Home
from seamlessflow.core.protocol.worker import Join, Joined

WAIT_S = 120.0
POLL_S = 1.0
TIMEOUT_S = 10.0


def machine_join(
    home: Home, *, name: str, tags: Sequence[str], control_plane_url: str, environ: Mapping[str, str]
) -> Path:
    """Join, store the token and return the path of its file. Raises CliError with one sentence."""
    secret = environ.get(JOIN_TOKEN_VARIABLE, "")
    if not secret:
        raise CliError(
            f"--token-file is missing: set {JOIN_TOKEN_VARIABLE} to the installation's join token (`seamlessflow up "
            f"--listen` prints where it is), or create a token for this machine with `seamlessflow machines register "
            f"{name} --tags {','.join(tags)}`",
            exit_code=2,
        )
    path = home.create().machine_token_file(name)
    stored = path.read_text().strip() if path.exists() else ""
    body = msgspec.json.encode(Join(name=name, tags=list(tags), stored_token=stored))
    answer = _post(f"{control_plane_url.rstrip('/')}/api/worker/v1/join", body, secret=secret)
    joined = msgspec.json.decode(answer, type=Joined)
    path.unlink(missing_ok=True)
    home.kept(path, joined.token)
    return path


def _post(url: str, body: bytes, *, secret: str) -> bytes:
    deadline_at = time.monotonic() + WAIT_S
    notice = ""
    headers = {"Authorization": f"Bearer {secret}", "Content-Type": "application/json"}
    while True:
        try:
            answer = httpx.post(url, content=body, headers=headers, timeout=TIMEOUT_S)
        except httpx.TransportError as error:
            trouble = f"it does not answer ({error})"
        else:
            if answer.is_success:
                return answer.content
            trouble = _detail(answer)
            if (
                answer.status_code < HTTPStatus.INTERNAL_SERVER_ERROR
                and answer.status_code != HTTPStatus.CONFLICT
            ):
                raise CliError(f"{url} refused: {trouble}", exit_code=2)
        if time.monotonic() > deadline_at:
            raise CliError(f"{url}: {trouble}; gave up after {WAIT_S:.0f} s")
        if not notice:
            notice = f"waiting up to {WAIT_S:.0f} s: {trouble}"
            click.echo(notice, err=True)
        time.sleep(POLL_S)


def _detail(answer: httpx.Response) -> str:
    try:
        return str(answer.json()["detail"])
    except (ValueError, KeyError, TypeError):
        return f"status {answer.status_code}"
