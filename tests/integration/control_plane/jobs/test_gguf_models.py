"""Jobs whose model is a GGUF file: converted once for a project, to the very numbers that the file stands for."""

import importlib.util
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file
from tokenizers import Tokenizer, pre_tokenizers

from seamlessflow.control_plane.common.errors import ApplicationError
from seamlessflow.control_plane.uploads.models import Artifact
from seamlessflow.core.types.ids import IdKind, show_id
from tests.fixtures.control_plane import Cast
from tests.fixtures.gguf_models import NUM_POSITIONS, GgufModel, gguf_model_write
from tests.fixtures.tiny_text import TEMPLATE

pytestmark = pytest.mark.django_db(transaction=True)
SAID = "<|im_start|>user\nWhat is the sum?\n\n12 + 34?<|im_end|>"


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> GgufModel:
    return gguf_model_write(tmp_path_factory.mktemp("gguf") / "model")


@pytest.fixture
def folder(written: GgufModel, tmp_path: Path) -> Path:
    """A folder under MODEL_ROOTS."""
    return Path(shutil.copytree(written.file.parent, tmp_path / "gguf"))


def with_model(source: Path) -> dict[str, Any]:
    return {"model": {"source": str(source), "max_model_len": 64}}


def refusal(cast: Cast, source: Path) -> str:
    with pytest.raises(ApplicationError) as refused:
        cast.job(**with_model(source))
    (fault,) = refused.value.faults
    assert fault.field == "model.source"
    return fault.detail


def test_a_gguf_file_becomes_an_upload_with_its_numbers_its_tokenizer_and_its_template(
    cast: Cast, folder: Path, written: GgufModel
) -> None:
    job = cast.job(**with_model(folder))

    (artifact,) = Artifact.objects.all()
    assert artifact.name == "tiny-instruct.Q4_1 (converted from GGUF)"
    assert job.resolved_spec.model.source == f"artifact://{show_id(IdKind.ARTIFACT, artifact.id)}"
    assert job.spec_submitted["model"]["source"] == str(folder)
    model = Path(job.model_path)
    config = json.loads((model / "config.json").read_text())
    assert (config["model_type"], config["max_position_embeddings"]) == ("llama", NUM_POSITIONS)
    assert "quantization_config" not in config
    weights = load_file(model / "model.safetensors")
    for ours, theirs in (
        ("model.embed_tokens", "token_embd"), ("lm_head", "output"), ("model.norm", "output_norm"),
        ("model.layers.1.mlp.down_proj", "blk.1.ffn_down"), ("model.layers.0.self_attn.v_proj", "blk.0.attn_v"),
    ):  # fmt: skip
        np.testing.assert_array_equal(weights[f"{ours}.weight"], written.weights[theirs], err_msg=ours)
    read, meant = (Tokenizer.from_file(str(at / "tokenizer.json")) for at in (model, written.text))
    assert read.encode(SAID).ids != meant.encode(SAID).ids
    digits = pre_tokenizers.Digits(individual_digits=True)  # the rule that the file names, before GPT-2's
    meant.pre_tokenizer = pre_tokenizers.Sequence([digits, pre_tokenizers.ByteLevel(add_prefix_space=False)])
    assert read.encode(SAID).ids == meant.encode(SAID).ids
    assert read.decode(read.encode("12 + 34").ids) == "12 + 34"
    assert (model / "chat_template.jinja").read_text() == TEMPLATE

    again = cast.job(**with_model(folder))
    assert again.model_path == job.model_path
    assert Artifact.objects.count() == 1, "it is converted once"


def test_what_cannot_be_converted_is_refused_with_what_to_do(
    cast: Cast, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = importlib.util.find_spec
    with monkeypatch.context() as patched:
        patched.setattr(
            "importlib.util.find_spec", lambda name, *more: None if name == "torch" else found(name, *more)
        )
        said = refusal(cast, folder)
    assert "has no torch to convert it" in said
    assert "python -m seamlessflow_workers.train.gguf tiny-instruct.Q4_1.gguf FOLDER" in said

    with monkeypatch.context() as patched:
        patched.setattr("seamlessflow.control_plane.jobs.submission.gguf.MAX_BYTES", 1000)
        assert "larger than the 1000 bytes" in refusal(cast, folder)

    (folder / "another.gguf").write_bytes(b"GGUF")
    assert "several GGUF files (another.gguf, tiny-instruct.Q4_1.gguf)" in refusal(cast, folder)
    assert not Artifact.objects.exists()


def test_a_converter_that_fails_is_quoted_and_leaves_nothing(
    cast: Cast, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "holiday.gguf").write_bytes(b"not a model")
    monkeypatch.setattr(
        "seamlessflow.control_plane.jobs.submission.gguf.PROGRAM", "json.tool"
    )  # needs no torch to refuse it

    assert "holiday.gguf cannot be converted: Expecting value" in refusal(cast, tmp_path / "bad")
    assert not Artifact.objects.exists()
    assert not list((tmp_path / "artifacts" / "uploads").glob("*"))
