"""Which roots are accepted, and what a refusal says: never a secret."""

from pathlib import Path

import pytest

from seamlessflow.runtime.artifacts.opening import InvalidRoot, cache_folder, root_url, store_open


def test_paths_and_urls_of_folders_and_buckets_are_roots() -> None:
    assert root_url("/var/art ifacts") == "file:///var/art%20ifacts"
    assert root_url("file:///var/art%20ifacts") == "file:///var/art%20ifacts"
    assert root_url("s3://bucket/prefix/") == "s3://bucket/prefix"
    assert store_open("/var/art ifacts").workspace("x") == Path("/var/art ifacts/x")


@pytest.mark.parametrize(
    "value", ["relative", "", "s3://", "gs://bucket", "file://host/x", "s3://bucket/a?b=c"]
)
def test_other_roots_are_refused_with_what_is_accepted(value: str) -> None:
    with pytest.raises(
        InvalidRoot, match=r"accepted: an absolute folder, as /path .* or s3://bucket\[/prefix\]"
    ):
        root_url(value)


def test_credentials_in_a_root_are_refused_and_not_repeated() -> None:
    with pytest.raises(InvalidRoot) as refused:
        root_url("s3://key:hush@bucket/prefix")
    assert "hush" not in str(refused.value)
    assert "they belong in the environment" in str(refused.value)


def test_the_cache_is_where_it_was_put_or_in_the_home() -> None:
    assert cache_folder({"SEAMLESSFLOW_CACHE_DIR": "/fast"}) == Path("/fast")
    assert cache_folder({"SEAMLESSFLOW_HOME": "/home"}) == Path("/home/cache/artifacts")
