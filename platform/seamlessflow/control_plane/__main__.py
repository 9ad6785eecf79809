"""`python -m seamlessflow.control_plane --host 0.0.0.0 --port 8000`: the web process as containers start it.

Beside `uvicorn …asgi:application` it refuses an address that the installation's mode does not allow, and it believes
`X-Forwarded-*` only from FORWARDED_ALLOW_IPS (default: this machine).
"""

import argparse
import os
import sys

from seamlessflow.control_plane.connections import HttpProtocol
from seamlessflow.core.protocol.exposure import MODE_VARIABLE, Mode, binding_refusal
from seamlessflow.runtime.http.server import server_config, server_run

APPLICATION = "seamlessflow.control_plane.asgi:application"
GRACEFUL_S = 10


def main() -> int:
    arguments = _arguments()
    mode = os.environ.get(MODE_VARIABLE) or Mode.LOCAL
    # An unknown mode is named by the settings, with the others that are wrong.
    refusal = binding_refusal(arguments.host, mode=Mode(mode)) if mode in tuple(Mode) else None
    if refusal:
        print(f"web: {refusal}", file=sys.stderr)
        return 1
    config = server_config(
        APPLICATION,
        HttpProtocol,
        host=arguments.host,
        port=arguments.port,
        proxy_headers=True,
        # To compress the same frame for each socket would cost several times as much as sending it.
        ws_per_message_deflate=False,
        timeout_graceful_shutdown=GRACEFUL_S,
    )
    return 0 if server_run(config) else 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="seamlessflow.control_plane", description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
