"""The Python client of the REST API."""

from seamlessflow.client.client import Client, JobStopped, needs_attention
from seamlessflow.client.errors import ApiError

__all__ = ["ApiError", "Client", "JobStopped", "needs_attention"]
