"""Files that an editor began with a byte order mark are read as without one: tasks, and specs as YAML and JSON."""

import gzip
import io
from codecs import BOM_UTF8
from pathlib import Path

import pytest

from seamlessflow.control_plane.common.errors import ApplicationError
from seamlessflow.control_plane.common.http.parsers import JsonParser, YamlParser
from seamlessflow.control_plane.jobs.submission.tasks_file import tasks_check
from seamlessflow.data_plane.errors import ApiError
from seamlessflow.data_plane.groups.tasks import tasks_load
from seamlessflow.runtime.yaml_documents import yaml_document

TASKS = b'{"question": "1 + 1"}\r\n{"question":\r"2 + 2"}\r\n'


def test_both_planes_read_the_tasks_of_a_file_with_a_mark(tmp_path: Path) -> None:
    path = tmp_path / "tasks.jsonl"
    path.write_bytes(BOM_UTF8 + TASKS)

    read: object
    try:
        read = tasks_check(path).num_tasks, list(tasks_load(str(path)))
    except (ApplicationError, ApiError) as error:
        read = error

    assert read == (2, [{"question": "1 + 1"}, {"question": "2 + 2"}])


@pytest.mark.parametrize("text", [b"name: a\n", b'{"name": "a"}'])
def test_specs_with_a_mark_are_read(text: bytes) -> None:
    assert yaml_document((BOM_UTF8 + text).decode()) == {"name": "a"}
    assert YamlParser().parse(io.BytesIO(BOM_UTF8 + text)) == {"name": "a"}


def test_a_json_body_with_a_mark_is_read() -> None:
    assert JsonParser().parse(io.BytesIO(BOM_UTF8 + b'{"name": "a"}')) == {"name": "a"}


@pytest.mark.parametrize(
    "content, kind",
    [
        (b"PAR1\x15\x04", "a Parquet file"),
        (gzip.compress(TASKS), "compressed with gzip"),
        (TASKS.decode().encode("utf-16"), "text in UTF-16"),
        (b'[\n  {"question": "1 + 1"}\n]\n', "one JSON array"),
        (b"version https://git-lfs.github.com/spec/v1\n", "a Git LFS pointer"),
    ],
)
def test_a_tasks_file_of_another_kind_is_refused_by_its_name(
    content: bytes, kind: str, tmp_path: Path
) -> None:
    path = tmp_path / "tasks.jsonl"
    path.write_bytes(content)
    with pytest.raises(ApplicationError, match=f"the file is {kind}"):
        tasks_check(path)
