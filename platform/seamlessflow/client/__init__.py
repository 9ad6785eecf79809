"""The Python client of the REST API."""

from seamlessflow.client.client import Client
from seamlessflow.client.errors import ApiError
from seamlessflow.client.stops import JobStopped, needs_attention

__all__ = ["ApiError", "Client", "JobStopped", "needs_attention"]
