"""Follows a job over REST until it has come far enough, and holds its record against the audit."""

from typing import Any

from seamlessflow.client import Client
from tests.acceptance.platform_process import eventually


def wait_for_version(client: Client, job_id: str, version: int) -> dict[str, Any]:
    def reached() -> dict[str, Any] | None:
        job = client.job_get(job_id)
        assert job["state"] in ("queued", "starting", "running"), f"{job['state']}: {job['state_reason']}"
        return job if job["latest_version"] >= version else None

    return eventually(reached, timeout_s=180, what=f"version {version}") or {}


def assert_audit_holds(client: Client, job_id: str) -> None:
    report = client.job_part(job_id, "audit")
    faults = [check for check in report["checks"] if not check["ok"]]
    assert report["checks"]
    assert not faults, faults
