"""What `make release` accepts: a clean tree at one tag whose version changelog and chart name too."""

import subprocess
from pathlib import Path

import pytest

from deploy.local import release
from deploy.local.release import ReleaseRefused

CHART = "deploy/helm/seamlessflow/Chart.yaml"


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Of a release: everything says 1.2.3, committed and tagged."""
    (tmp_path / CHART).parent.mkdir(parents=True)
    (tmp_path / CHART).write_text("version: 1.2.3\nappVersion: 1.2.3\n")
    (tmp_path / "CHANGELOG.md").write_text("# Changelog\n\n## Unreleased\n\n## 1.2.3\n")
    monkeypatch.setattr(release, "ROOT", tmp_path)
    git(tmp_path, "init", "--quiet")
    commit(tmp_path)
    git(tmp_path, "tag", "v1.2.3")
    return tmp_path


def git(folder: Path, *arguments: str) -> None:
    author = ("-c", "user.name=Test", "-c", "user.email=test@example.org")
    subprocess.run(["git", *author, *arguments], cwd=folder, check=True, capture_output=True)


def commit(folder: Path) -> None:
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "-m", "Change something")


def test_the_tag_is_the_version(tree: Path) -> None:
    assert release.version_of_tree() == "1.2.3"


def test_a_changed_tree_is_refused_with_the_names_of_its_files(tree: Path) -> None:
    (tree / "new.py").touch()
    with pytest.raises(ReleaseRefused, match=r"new\.py"):
        release.version_of_tree()


def test_a_commit_after_the_tag_is_refused(tree: Path) -> None:
    (tree / "new.py").touch()
    commit(tree)
    with pytest.raises(ReleaseRefused, match="it has: none"):
        release.version_of_tree()


def test_other_tags_do_not_count_and_two_versions_are_refused(tree: Path) -> None:
    git(tree, "tag", "nightly")
    assert release.version_of_tree() == "1.2.3"
    git(tree, "tag", "v1.2.4")
    with pytest.raises(ReleaseRefused, match=r"1\.2\.3, 1\.2\.4"):
        release.version_of_tree()


@pytest.mark.parametrize(
    "path, text",
    [
        ("CHANGELOG.md", "# Changelog\n\n## Unreleased\n"),
        (CHART, "version: 1.2.2\nappVersion: 1.2.3\n"),
        (CHART, "version: 1.2.3\nappVersion: 1.2.2\n"),
    ],
)
def test_a_file_that_names_another_version_is_refused_by_its_line(tree: Path, path: str, text: str) -> None:
    (tree / path).write_text(text)
    commit(tree)
    git(tree, "tag", "--force", "v1.2.3")
    with pytest.raises(ReleaseRefused, match=path):
        release.version_of_tree()
