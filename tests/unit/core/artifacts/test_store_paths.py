"""Names in the artifact store: bundles, and URLs that must not lead elsewhere."""

from uuid import UUID

import pytest

from seamlessflow.core.artifacts.index import BundleIndex, FileFacts, InvalidIndex, index_decode, index_encode
from seamlessflow.core.artifacts.store_paths import (
    bundle_of,
    checkpoint_number,
    checkpoint_path,
    path_of_url,
    trajectories_path,
    upload_path,
    url_of_path,
    version_path,
)

JOB = UUID(int=1)
ROOT = "s3://bucket/a prefix"


@pytest.mark.parametrize(
    "bundle", [version_path(JOB, 3), checkpoint_path(JOB, 4), trajectories_path(JOB), upload_path(JOB)]
)
def test_whatever_is_inside_a_bundle_belongs_to_it(bundle: str) -> None:
    assert bundle_of(bundle) == (bundle, "")
    assert bundle_of(f"{bundle}/nested/file.json") == (bundle, "nested/file.json")


def test_a_url_leads_back_to_its_place() -> None:
    for store_path in (version_path(JOB, 3), f"{upload_path(JOB)}/with space/100%.json", "ü/ä"):
        assert path_of_url(ROOT, url_of_path(ROOT, store_path)) == store_path


@pytest.mark.parametrize(
    "url",
    [
        "s3://bucket/a prefix", "s3://bucket/a prefix/", "s3://bucket/a prefix/../x", "s3://bucket/a prefix/x/%2e%2e/y",
        "s3://bucket/a prefix2/x", "s3://other/a prefix/x", "file:///a prefix/x", "s3://bucket/a prefix/x?y=1",
        "s3://bucket/a prefix//x", "s3://bucket/a prefix/x%00", "s3://[",
    ],
)  # fmt: skip
def test_urls_of_elsewhere_have_no_place(url: str) -> None:
    assert path_of_url(ROOT, url) is None


def test_only_batches_are_checkpoints() -> None:
    assert checkpoint_number("batch-12") == 12
    for name in ("batch-", "batch-x", ".saving-1", "latest.json", "batch-²"):
        assert checkpoint_number(name) is None


def test_an_index_that_names_files_outside_its_bundle_is_refused() -> None:
    facts = FileFacts(num_bytes=1, sha256="0")
    good = BundleIndex(upload="u", files={"a/b": facts})
    assert index_decode(index_encode(good)) == good
    for name in ("../x", "/x", "a//b", "."):
        with pytest.raises(InvalidIndex, match="no file of a bundle"):
            index_decode(index_encode(BundleIndex(upload="u", files={name: facts})))
    with pytest.raises(InvalidIndex, match="format_version 9, expected 1"):
        index_decode(index_encode(BundleIndex(format_version=9, upload="u", files={})))
    with pytest.raises(InvalidIndex, match="not an index"):
        index_decode(b"{")
