"""`python -m seamlessflow.control_plane --host 0.0.0.0 --port 8000`: the web process as containers start it.

Beside `uvicorn …asgi:application` it refuses an address that the installation's mode does not allow, and it believes
`X-Forwarded-*` only from FORWARDED_ALLOW_IPS (default: this machine).
"""

import argparse
import os
import sys

import uvicorn

from seamlessflow.control_plane.connections import HttpProtocol
from seamlessflow.core.protocol.exposure import MODE_VARIABLE, Mode, binding_refusal

APPLICATION = "seamlessflow.control_plane.asgi:application"
GRACEFUL_S = 10
KEEPALIVE_S = 75  # longer than a proxy keeps a connection it may still use


def main() -> int:
    arguments = _arguments()
    mode = os.environ.get(MODE_VARIABLE) or Mode.LOCAL
    # An unknown mode is named by the settings, with the others that are wrong.
    refusal = binding_refusal(arguments.host, mode=Mode(mode)) if mode in tuple(Mode) else None
    if refusal:
        print(f"web: {refusal}", file=sys.stderr)
        return 1
    uvicorn.run(
        APPLICATION,
        host=arguments.host,
        port=arguments.port,
        http=HttpProtocol,
        access_log=False,
        proxy_headers=True,
        server_header=False,
        # Compressing the same frame anew for each socket would cost several times what sending it does.
        ws_per_message_deflate=False,
        timeout_keep_alive=KEEPALIVE_S,
        timeout_graceful_shutdown=GRACEFUL_S,
    )
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="seamlessflow.control_plane", description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
