"""A stored version is exported over REST as a folder that transformers or peft loads, with the same
logits."""

import asyncio
import io
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest
import torch
from django.http import HttpResponse, StreamingHttpResponse
from django.utils import timezone
from peft import PeftModel
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, PreTrainedModel, Qwen3Config, Qwen3ForCausalLM

from seamlessflow.control_plane.jobs.models import Job
from seamlessflow.control_plane.policies.models import PolicyVersion
from seamlessflow.control_plane.policies.selectors.merging import from_floats, merged, to_floats
from seamlessflow.core.types.ids import IdKind, show_id
from seamlessflow_workers.rollout import weights as engine_weights
from seamlessflow_workers.weights.tensors import RawTensor
from seamlessflow_workers.weights.transports.file.sending import weights_publish
from tests.fakes.tensors_in_memory import TensorsInMemory
from tests.fixtures.adapters import merge_adapter, save_adapter
from tests.fixtures.control_plane import Cast, Person
from tests.fixtures.stored_files import job_folder

pytestmark = pytest.mark.django_db

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
FORMATS = {torch.float32: "F32", torch.bfloat16: "BF16"}
IDS = torch.arange(3, 20)[None]


def tiny_model(seed: int) -> PreTrainedModel:
    torch.manual_seed(seed)
    sizes: dict[str, Any] = {
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
    }
    config = Qwen3Config(
        vocab_size=64, num_key_value_heads=1, head_dim=16, max_position_embeddings=4096, tie_word_embeddings=True,
        initializer_range=0.2, **sizes,
    )  # fmt: skip
    model = Qwen3ForCausalLM(config)
    model.eval()
    return model


@pytest.fixture
def base(cast: Cast) -> PreTrainedModel:
    """The model of the cast's jobs, here with weights that can be loaded."""
    model = tiny_model(0)
    model.save_pretrained(cast.model)
    (cast.model / "modeling.py").write_text("raise SystemExit")
    return model


def version_make(job: Job, version: int) -> tuple[Path, PolicyVersion]:
    folder = job_folder(job.id) / "versions" / str(version)
    row = PolicyVersion.objects.create(
        project=job.project, job=job, version=version, uri=folder.as_uri(), batch_number=version
    )
    return folder, row


def publish_whole(job: Job, model: PreTrainedModel, *, dtype: str, max_shard_bytes: int = 2**31) -> None:
    """Publish version 1, with the head beside the embedding, as a trainer does."""
    folder, _ = version_make(job, 1)
    tensors = {}
    for name, tensor in model.state_dict().items():
        data = tensor.to(DTYPES[dtype]).contiguous().view(torch.uint8).numpy().tobytes()
        tensors[name] = RawTensor(FORMATS[DTYPES[dtype]], tuple(tensor.shape), data, len(data))
    weights_publish(
        folder.parent,
        TensorsInMemory(tensors),
        job_id=job.id,
        version=1,
        parent_version=0,
        dtype=dtype,
        max_shard_bytes=max_shard_bytes,
    )


def ask(person: Person, job: Job, version: int, form: str | None = None) -> HttpResponse:
    query = f"?form={form}" if form else ""
    return person.call("GET", f"jobs/{show_id(IdKind.JOB, job.id)}/versions/{version}/export{query}")


def unpacked(response: HttpResponse | StreamingHttpResponse, folder: Path) -> Path:
    assert response.status_code == 200
    assert response["Content-Type"] == "application/x-tar"

    async def read() -> bytes:
        assert isinstance(response, StreamingHttpResponse)
        return b"".join([chunk async for chunk in response])

    raw = asyncio.run(read())
    assert len(raw) == int(response["Content-Length"])
    with tarfile.open(fileobj=io.BytesIO(raw)) as archive:
        archive.extractall(folder, filter="data")
    return folder


def logits(model: torch.nn.Module) -> torch.Tensor:
    with torch.no_grad():
        result: torch.Tensor = model(IDS).logits
    return result


def load(folder: Path) -> PreTrainedModel:
    """Load in the number format that the folder itself names."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype="auto")
    assert isinstance(model, PreTrainedModel)
    return model


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("max_shard_bytes", [2**31, 20_000])
@pytest.mark.usefixtures("base")
def test_whole_weights_load_with_the_same_logits(
    cast: Cast, tmp_path: Path, dtype: str, max_shard_bytes: int
) -> None:
    job, trained = cast.job(model={"source": str(cast.model), "dtype": dtype}), tiny_model(1)
    publish_whole(job, trained, dtype=dtype, max_shard_bytes=max_shard_bytes)

    folder = unpacked(ask(cast.owner, job, 1), tmp_path / "out")

    trained.save_pretrained(tmp_path / "trained")
    expected = AutoModelForCausalLM.from_pretrained(tmp_path / "trained", dtype=DTYPES[dtype])
    found = load(folder)
    assert found.dtype == DTYPES[dtype]
    assert torch.equal(logits(found), logits(expected))
    files = {file.name for file in folder.iterdir()}
    assert ("model.safetensors.index.json" in files) == (max_shard_bytes < 2**31)
    assert {"config.json", "generation_config.json", "tokenizer.json"} <= files
    assert "modeling.py" not in files, "code is not handed on"


@pytest.mark.usefixtures("base")
def test_tensors_that_are_not_trained_are_exported_as_the_model_folder_has_them(
    cast: Cast, tmp_path: Path
) -> None:
    """Those of a layer that predicts a further token; the router's correction is never rounded."""
    predictor, correction = "model.layers.2.eh_proj.weight", "model.layers.0.mlp.gate.e_score_correction_bias"
    beside = {predictor: torch.rand(3, 2), correction: torch.rand(4)}
    save_file(beside, cast.model / "model-beside.safetensors")
    dtype = {"source": str(cast.model), "dtype": "bfloat16"}
    whole, adapted = (
        cast.job(model=dtype),
        cast.job(model=dtype, train={"num_updates": 2, "lora": {"rank": 4}}),
    )
    publish_whole(whole, tiny_model(1), dtype="bfloat16")
    save_adapter(tiny_model(0), version_make(adapted, 1)[0], seed=5)

    for job in (whole, adapted):
        folder = unpacked(ask(cast.owner, job, 1), tmp_path / str(job.id))
        exported = {name: t for file in folder.glob("*.safetensors") for name, t in load_file(file).items()}
        assert torch.equal(exported[correction], beside[correction])
        assert torch.equal(exported[predictor], beside[predictor].to(exported[predictor].dtype))
        weight = exported["model.layers.0.self_attn.q_proj.weight"]
        assert weight.dtype == torch.bfloat16
    index = json.loads((folder / "model.safetensors.index.json").read_text())
    assert predictor in index["weight_map"]


@pytest.mark.parametrize("dtype", DTYPES)
def test_an_adapter_is_exported_merged_or_alone(
    cast: Cast, base: PreTrainedModel, tmp_path: Path, dtype: str
) -> None:
    spec: dict[str, Any] = {
        "model": {"source": str(cast.model), "dtype": dtype},
        "train": {"num_updates": 2, "lora": {"rank": 4}},
    }
    job = cast.job(**spec)
    adapter, _ = version_make(job, 1)
    save_adapter(tiny_model(0), adapter, seed=5)
    expected = tiny_model(0)
    torch.nn.Module.to(torch.nn.Module.to(expected, DTYPES[dtype]), torch.float32)
    expected = merge_adapter(expected, adapter)

    whole = load(unpacked(ask(cast.owner, job, 1), tmp_path / "model"))
    alone = unpacked(ask(cast.member, job, 1, "adapter"), tmp_path / "adapter")

    assert whole.dtype == DTYPES[dtype]
    # In bfloat16 to the last bit: numpy and torch may sum in another order.
    tolerance = 1e-6 if dtype == "float32" else 2**-8
    for name, weight in whole.state_dict().items():
        assert torch.allclose(weight.float(), expected.state_dict()[name], rtol=tolerance, atol=1e-6), name
    if dtype == "float32":
        assert torch.allclose(logits(whole), logits(expected), atol=1e-5)
    assert {file.name for file in alone.iterdir()} == {"adapter_config.json", "adapter_model.safetensors"}
    over_base = PeftModel.from_pretrained(tiny_model(0), str(alone)).eval()
    plain = merge_adapter(tiny_model(0), adapter)
    assert torch.allclose(logits(over_base), logits(plain), atol=1e-5)
    assert (logits(over_base) - logits(base)).abs().max() > 0.1  # the adapter shows


def test_the_initial_model_is_version_0(cast: Cast, base: PreTrainedModel, tmp_path: Path) -> None:
    folder = unpacked(ask(cast.owner, cast.job(), 0), tmp_path / "out")
    assert torch.equal(logits(load(folder)), logits(base))


@pytest.mark.parametrize("dtype", DTYPES)
def test_merged_weights_equal_those_of_the_engines(dtype: str) -> None:
    torch.manual_seed(3)
    base, down, up = torch.randn(48, 40), torch.randn(4, 40).to(DTYPES[dtype]), torch.randn(48, 4)
    change = engine_weights.LowRank(down=down, up=up, scale=0.7)
    expected = engine_weights.merged(base, change, DTYPES[dtype])
    name = FORMATS[DTYPES[dtype]]
    values = merged(base.numpy(), down.float().numpy(), up.numpy(), scale=0.7, dtype=name)
    found = torch.frombuffer(bytearray(from_floats(values, name)), dtype=DTYPES[dtype]).reshape(48, 40)
    torch.testing.assert_close(found, expected)
    raw = expected.contiguous().view(torch.uint8).numpy().tobytes()
    assert from_floats(to_floats(raw, name), name) == raw


@pytest.mark.usefixtures("base")
def test_an_impossible_export_is_refused_in_one_sentence(cast: Cast) -> None:
    job = cast.job()
    publish_whole(job, tiny_model(1), dtype="float32")
    _, gone = version_make(job, 2)
    PolicyVersion.objects.filter(id=gone.id).update(deleted_at=timezone.now())
    version_make(job, 3)
    refusals = {
        (cast.owner, 9, None): (404, "there is no version 9"),
        (cast.owner, 1, "adapter"): (400, "form: 'adapter' is not accepted: the version is not an adapter"),
        (cast.owner, 1, "onnx"): (400, "form: 'onnx' is not accepted; accepted: model, adapter"),
        (cast.owner, 2, None): (410, "the files of version 2 are gone"),
        (cast.owner, 3, None): (409, "the files of version 3 cannot be read"),
        (cast.outsider, 1, None): (404, "there is no job"),
    }
    for (person, version, form), (status, detail) in refusals.items():
        response = ask(person, job, version, form)
        assert response.status_code == status
        assert json.loads(response.content)["detail"].startswith(detail)
