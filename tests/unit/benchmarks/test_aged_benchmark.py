"""The benchmark of an aged installation knows a value for each parameter in the addresses that it
fetches."""

from tests.benchmarks.aged_pages import rest_paths

KNOWN = ("job_id", "machine_id", "phase_id", "group_id", "session_id", "index", "slug")


def test_each_address_of_the_rest_api_can_be_fetched() -> None:
    paths = rest_paths({name: f"<{name}>" for name in KNOWN})

    assert paths["jobs/{job_id}/events"] == "/api/v1/jobs/<job_id>/events"
    assert not [path for path in paths.values() if "{" in path]
