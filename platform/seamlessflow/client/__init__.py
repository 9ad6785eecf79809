"""The Python client of the REST API."""

from seamlessflow.client.client import ApiError, Client, JobFailed

__all__ = ["ApiError", "Client", "JobFailed"]
