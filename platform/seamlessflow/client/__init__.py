"""The Python client of the REST API."""

from seamlessflow.client.client import Client, JobFailed
from seamlessflow.client.errors import ApiError

__all__ = ["ApiError", "Client", "JobFailed"]
