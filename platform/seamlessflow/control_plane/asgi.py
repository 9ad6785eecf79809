"""The web process: HTTP by Django, websockets by Channels. It starts only once the database answers."""

import os
import sys

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "seamlessflow.control_plane.settings")
os.environ.setdefault("SEAMLESSFLOW_DATABASE_POOL", "16")

import django

django.setup(set_prefix=False)

# Models may be imported only now that Django is set up.
from channels.auth import AuthMiddlewareStack  # noqa: E402
from channels.routing import ProtocolTypeRouter, URLRouter  # noqa: E402
from django.conf import settings  # noqa: E402

from seamlessflow.control_plane.accounts.apis.authentication import is_caller_known  # noqa: E402
from seamlessflow.control_plane.common.database.availability import DatabaseUnavailable, database_wait  # noqa: E402
from seamlessflow.control_plane.common.http.body_gate import BodyGate  # noqa: E402
from seamlessflow.control_plane.common.http.database_gate import DatabaseGate  # noqa: E402
from seamlessflow.control_plane.common.http.spooling import SpoolingHandler  # noqa: E402
from seamlessflow.control_plane.live.origins import OriginCheck  # noqa: E402
from seamlessflow.control_plane.live.routing import websocket_urlpatterns  # noqa: E402
from seamlessflow.control_plane.liveness import LiveApplication  # noqa: E402
from seamlessflow.control_plane.uploads.services.incoming import leftovers_remove  # noqa: E402
from seamlessflow.control_plane.worker_protocol.door import WorkerDoor  # noqa: E402
from seamlessflow.runtime.extensions import extensions_installed  # noqa: E402

try:
    database_wait()
except DatabaseUnavailable as error:
    sys.exit(f"seamlessflow: {error}")

leftovers_remove(settings.INCOMING_DIR)
extensions_installed()  # now rather than at the first job, so that the log of the start says what is unusable

application = LiveApplication(
    ProtocolTypeRouter(
        {
            "http": DatabaseGate(BodyGate(WorkerDoor(SpoolingHandler()), is_known=is_caller_known)),
            "websocket": OriginCheck(AuthMiddlewareStack(URLRouter(websocket_urlpatterns))),
        }
    )
)
