"""Masks computed again from a batch: those of the engine's matcher, token by token, or none and no training."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from seamlessflow.core.batching.format import Batch, batch_decode, batch_encode
from seamlessflow.core.guidance.matching import Vocabulary
from seamlessflow_workers.train.step import guide_masks
from seamlessflow_workers.train.step.guide_masks import FREE, BatchMasks, MaskMaker, without_unknown
from tests.fixtures.guidance import NUM_TOKENS
from tests.fixtures.guided_sessions import guided_batch, guided_vocabulary, of_another_library
from tests.fixtures.tiny_text import write_tiny_text


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(write_tiny_text(tmp_path_factory.mktemp("text") / "model"))


@pytest.fixture(scope="module")
def vocabulary(folder: Path) -> Vocabulary:
    return guided_vocabulary(folder)


def masks_of(folder: Path, batch: Batch) -> BatchMasks:
    masks = MaskMaker(folder, num_tokens=NUM_TOKENS).masks(batch)
    assert masks is not None
    return masks


@pytest.mark.parametrize("is_tree", [False, True])
def test_each_guided_token_has_the_mask_that_it_was_sampled_under(
    folder: Path, vocabulary: Vocabulary, is_tree: bool
) -> None:
    batch = batch_decode(batch_encode(guided_batch(vocabulary, is_tree=is_tree)))
    masks = masks_of(folder, batch)

    expected = np.full(len(batch.token_ids), FREE)
    for start, end, number in zip(batch.guided_starts, batch.guided_ends, batch.guided_guides, strict=True):
        matcher = vocabulary.matcher(batch.header.guides[number].guide)
        for place in range(start, end):
            if batch.loss_mask[place]:
                assert (masks.table[masks.rows[place]] == matcher.mask()).all()
                expected[place] = masks.rows[place]
            matcher.consume(int(batch.token_ids[place]))
    is_trained = batch.loss_mask != 0
    assert (masks.rows[is_trained] == expected[is_trained]).all()
    assert (masks.rows[is_trained] == FREE).sum() == 4 * (5 + 2), (
        "five tokens freely, two thoughts, in each session"
    )
    assert (masks.rows[is_trained] != FREE).sum() > 50
    assert not masks.is_unknown.any()
    assert len(masks.table) < (masks.rows != FREE).sum() / 2, "equal masks are kept once"


def test_some_tokens_take_only_their_masks(folder: Path, vocabulary: Vocabulary) -> None:
    batch = guided_batch(vocabulary, is_tree=True)
    masks = masks_of(folder, batch)
    guided, free = np.flatnonzero(masks.rows != FREE)[-5:], np.flatnonzero(masks.rows == FREE)
    assert masks.of(free) is None
    for token_indices in (guided, np.concatenate([free[:2], guided])):
        some = masks.of(token_indices)
        assert some is not None
        assert len(some.table) <= 5
        for row, place in zip(some.rows, token_indices, strict=True):
            if place in guided:
                assert (some.table[row] == masks.table[masks.rows[place]]).all()
            else:
                assert row == FREE


def test_masks_of_another_library_are_unknown_and_their_tokens_train_nothing(
    folder: Path, vocabulary: Vocabulary
) -> None:
    batch = of_another_library(guided_batch(vocabulary, is_tree=True), number=0)
    masks = masks_of(folder, batch)
    kept = without_unknown(batch, masks)

    of_first = np.zeros(len(batch.token_ids), dtype=np.bool_)
    for start, end, number in zip(batch.guided_starts, batch.guided_ends, batch.guided_guides, strict=True):
        of_first[start:end] = number == 0
    assert (masks.is_unknown == (of_first & (batch.loss_mask != 0))).all()
    assert (kept.loss_mask == np.where(of_first, 0, batch.loss_mask)).all()
    for name in ("loss_weights", "advantages_positive", "advantages_negative"):
        assert (getattr(kept, name)[of_first] == 0).all()
        assert (getattr(kept, name)[~of_first] == getattr(batch, name)[~of_first]).all()
        assert getattr(kept, name).dtype == np.float32


def test_tokens_that_do_not_fit_their_guide_are_unknown(folder: Path, vocabulary: Vocabulary) -> None:
    batch = guided_batch(vocabulary, is_tree=True)
    ids = batch.token_ids.copy()
    ids[batch.guided_starts[0]] = 90
    masks = masks_of(folder, dataclasses.replace(batch, token_ids=ids))
    assert masks.is_unknown.sum() == batch.guided_ends[0] - batch.guided_starts[0]
    assert (masks.rows[masks.is_unknown] == FREE).all()


def test_a_folder_with_another_tokenizer_or_none_knows_no_mask(
    folder: Path, vocabulary: Vocabulary, tmp_path: Path
) -> None:
    batch = guided_batch(vocabulary, is_tree=True)
    text = (folder / "tokenizer.json").read_text()
    (tmp_path / "tokenizer.json").write_text(text + "\n")
    for other in (tmp_path, tmp_path / "nowhere"):
        masks = masks_of(other, batch)
        assert (masks.rows == FREE).all()
        assert masks.is_unknown.sum() > 50


def test_masks_beyond_the_bound_are_unknown(
    folder: Path, vocabulary: Vocabulary, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guide_masks, "MAX_TABLE_BYTES", 3 * NUM_TOKENS // 8)
    masks = masks_of(folder, guided_batch(vocabulary, is_tree=True))
    assert masks.is_unknown.any()
    assert len(masks.table) <= 3


def test_a_batch_without_guided_answers_has_no_masks(folder: Path, vocabulary: Vocabulary) -> None:
    batch = guided_batch(vocabulary, is_tree=True)
    none = np.zeros(0, dtype=np.int32)
    free = dataclasses.replace(batch, guided_starts=none, guided_ends=none, guided_guides=none)
    assert MaskMaker(folder / "nowhere", num_tokens=NUM_TOKENS).masks(free) is None
