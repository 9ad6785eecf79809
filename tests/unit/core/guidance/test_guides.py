"""Guides as values: what is accepted, and that equal requests give equal digests."""

from typing import Any

import pytest

from seamlessflow.core.guidance.guide import MAX_GUIDE_BYTES, GuideKind, InvalidGuideError, guide_make


def test_equal_requests_have_one_digest_and_any_difference_another() -> None:
    schema = {"type": "object", "properties": {"b": {}, "a": {}}}
    first = guide_make({"json": schema, "regex": None}, end_token_ids=[2, 0])
    assert first.text == '{"type":"object","properties":{"b":{},"a":{}}}'
    assert first.digest == guide_make({"json": first.text}, end_token_ids=[0, 2, 2]).digest
    others = (
        guide_make({"json": schema}, end_token_ids=[2]),
        guide_make({"json": schema | {"properties": {"a": {}, "b": {}}}}, end_token_ids=[0, 2]),
        guide_make({"regex": first.text}, end_token_ids=[0, 2]),
    )
    assert len({first.digest, *(other.digest for other in others)}) == 4


@pytest.mark.parametrize("kind", GuideKind)
def test_every_kind_of_vllm_is_accepted(kind: GuideKind) -> None:
    values: dict[GuideKind, Any] = {GuideKind.JSON: {}, GuideKind.CHOICE: ["yes", "no"]}
    assert guide_make({kind.value: values.get(kind, "start: /a/")}, end_token_ids=[2]).kind is kind


@pytest.mark.parametrize(
    "wanted",
    [
        {},
        {"json": None},
        {"json": {}, "regex": "a"},
        {"structural_tag": "{}"},
        {"regex": ""},
        {"regex": 7},
        {"regex": "a\ud800"},
        {"grammar": ["start: /a/"]},
        {"choice": []},
        {"choice": "yes"},
        {"choice": ["yes", ""]},
        {"choice": ["yes", 1]},
        {"choice": ["a"] * 2000},
        {"choice": ["\ud800"]},
        {"json": "{"},
        {"json": "[" * 100_000},
        {"json": "[1]"},
        {"json": True},
        {"json": {"const": float("nan")}},
        {"regex": "a" * (MAX_GUIDE_BYTES + 1)},
    ],
)
def test_anything_else_is_refused(wanted: dict[str, Any]) -> None:
    with pytest.raises(InvalidGuideError):
        guide_make(wanted, end_token_ids=[2])


def test_an_answer_without_an_end_token_is_refused() -> None:
    with pytest.raises(InvalidGuideError, match="end-of-sequence"):
        guide_make({"regex": "a"}, end_token_ids=[])
