"""What surrounds vLLM and does without it: its settings, the weights its workers read, its metrics' text."""

import argparse
import json
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from prometheus_client import CollectorRegistry, Counter, Gauge
from safetensors.torch import save_file
from torch import Tensor

from seamlessflow.core.sizing.gpu_memory import CONTEXT_BYTES
from seamlessflow_workers.rollout.vllm import metrics
from seamlessflow_workers.rollout.vllm.options import (
    MIN_CPU_CACHE_BYTES,
    UNKNOWN_CPU_CACHE_BYTES,
    cpu_cache_bytes,
    engine_arguments,
    refusal,
)
from seamlessflow_workers.rollout.vllm.worker_memory import bytes_kept
from seamlessflow_workers.rollout.vllm.worker_weights import WorkerWeights
from seamlessflow_workers.weights.offers import WeightsError

CONFIG = {
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "hidden_size": 256,
}


def options(model: Path, device: str) -> argparse.Namespace:
    return argparse.Namespace(
        model=model, dtype="float32", max_model_len=1000, slots=64, seed=None, device=device,
        gpu_memory_utilization=0.8, tensor_parallel=1, pipeline_parallel=1, expert_parallel=False, engine_args={},
    )  # fmt: skip


def test_engines_sample_apart_and_report_what_they_sampled_from(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    for device in ("cpu", "cuda"):
        first, second = (engine_arguments(options(tmp_path, device)) for _ in range(2))
        assert first["seed"] != second["seed"]
        assert first["logprobs_mode"] == "processed_logprobs"
        assert first["trust_remote_code"] is False


def test_settings_follow_the_device(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    on_cpu, on_cuda = (engine_arguments(options(tmp_path, device)) for device in ("cpu", "cuda"))
    assert on_cpu["enforce_eager"]
    assert on_cpu["block_size"] % 32 == 0
    assert "enforce_eager" not in on_cuda
    assert len(on_cpu["logits_processors"]) == 1
    assert "logits_processors" not in on_cuda, "its model runner has another interface for them"
    assert on_cuda["enable_sleep_mode"]
    assert on_cuda["gpu_memory_utilization"] == 0.8


def test_a_worker_that_sleeps_keeps_what_was_not_unmapped() -> None:
    allocations = [
        SimpleNamespace(handle=(0, num_bytes, 0, 0), is_asleep=is_asleep)
        for num_bytes, is_asleep in ((60, True), (10, True), (5, False))
    ]
    assert bytes_kept(allocations, reserved_bytes=80) == 10 + CONTEXT_BYTES
    assert bytes_kept([], reserved_bytes=0) == CONTEXT_BYTES


def test_what_the_job_asks_of_vllm_comes_last_and_workers_share_the_cache_of_a_cpu(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    asked = options(tmp_path, "cpu")
    alone = engine_arguments(asked)
    asked.tensor_parallel, asked.engine_args = 2, {"block_size": 64}
    shared = engine_arguments(asked)
    assert (alone["tensor_parallel_size"], shared["tensor_parallel_size"]) == (1, 2)
    assert shared["kv_cache_memory_bytes"] == alone["kv_cache_memory_bytes"] // 2
    assert (alone["block_size"], shared["block_size"]) == (32, 64)


def test_cache_of_a_cpu_holds_what_may_run_twice_over(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    per_token = 2 * 4 * 2 * (256 // 8) * 4  # keys and values, layers, heads, width, float32
    assert cpu_cache_bytes(tmp_path, "float32", num_tokens=100_000) == 2 * 100_000 * per_token
    assert cpu_cache_bytes(tmp_path, "bfloat16", num_tokens=10) == MIN_CPU_CACHE_BYTES
    assert cpu_cache_bytes(tmp_path / "absent", "float32", num_tokens=10) == UNKNOWN_CPU_CACHE_BYTES


def test_mixtures_of_experts_are_refused_on_a_cpu_only(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({**CONFIG, "num_experts": 8}))
    assert "use rollout.engine embedded, or a GPU" in (refusal(tmp_path, "cpu") or "")
    assert refusal(tmp_path, "cuda") is None
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    assert refusal(tmp_path, "cpu") is None


def weights_of(model: Path, *, is_tied: bool) -> WorkerWeights:
    text = SimpleNamespace(tie_word_embeddings=is_tied, num_hidden_layers=1)
    config = SimpleNamespace(model=str(model), hf_text_config=text, dtype=torch.float32)
    return WorkerWeights(config, lambda shapes: {})


def tensors(value: float, *names: str) -> dict[str, Tensor]:
    return {name: torch.full((3, 2), value) for name in names}


EMBEDDING, HEAD, LAYER = "model.embed_tokens.weight", "lm_head.weight", "model.layers.0.mlp.down_proj.weight"


@pytest.mark.parametrize("offered", [(EMBEDDING, LAYER), (HEAD, LAYER), (EMBEDDING, HEAD, LAYER)])
def test_the_head_of_a_tied_model_is_always_handed_over(tmp_path: Path, offered: tuple[str, ...]) -> None:
    save_file(tensors(0.0, EMBEDDING, LAYER), tmp_path / "model.safetensors")
    (tmp_path / "new").mkdir()
    save_file(tensors(1.0, *offered), tmp_path / "new" / "model.safetensors")
    worker = weights_of(tmp_path, is_tied=True)

    assert worker.stage(tmp_path / "new") == ""
    loaded = worker.staged()
    worker.loaded()

    assert set(loaded) == {EMBEDDING, HEAD, LAYER}
    assert all(bool((tensor == 1).all()) for tensor in loaded.values())


def test_weights_that_do_not_fit_are_told_and_never_applied(tmp_path: Path) -> None:
    save_file(tensors(0.0, EMBEDDING, HEAD, LAYER), tmp_path / "model.safetensors")
    new = tmp_path / "new.safetensors"
    save_file(tensors(1.0, EMBEDDING, HEAD), new)
    worker = weights_of(tmp_path, is_tied=False)

    assert LAYER in worker.stage(new)
    with pytest.raises(WeightsError, match="no weights are staged"):
        worker.staged()


def test_layers_that_predict_further_tokens_are_not_missed(tmp_path: Path) -> None:
    """A trainer publishes none, and vLLM loads none unless it decodes ahead."""
    predictor = "model.layers.1.eh_proj.weight"
    save_file(tensors(0.0, EMBEDDING, HEAD, LAYER, predictor), tmp_path / "model.safetensors")
    new = tmp_path / "new.safetensors"
    save_file(tensors(1.0, EMBEDDING, HEAD, LAYER), new)
    worker = weights_of(tmp_path, is_tied=False)

    assert worker.stage(new) == ""
    assert set(worker.staged()) == {EMBEDDING, HEAD, LAYER}


def test_metrics_are_vllms_but_for_what_the_server_knows_better(monkeypatch: pytest.MonkeyPatch) -> None:
    registry = CollectorRegistry()
    monkeypatch.setattr(metrics, "REGISTRY", registry)
    Gauge("vllm:num_requests_running", "of the last step", ["engine"], registry=registry).labels("0").set(3)
    Gauge("vllm:num_requests_waiting", "of the last step", ["engine"], registry=registry).labels("0").set(1)
    Counter("vllm:generation_tokens", "sampled", ["engine"], registry=registry).labels("0").inc(7)

    text = metrics.render_metrics(
        model_name="m", num_unfinished=6, num_parked=4, rejections={"max_num_queued_reqs": 2}
    )

    values = {
        line.partition("{")[0]: float(line.rsplit(" ", 1)[1])
        for line in text.splitlines()
        if line.startswith("vllm:") and "_created" not in line
    }
    assert values == {
        "vllm:generation_tokens_total": 7,
        "vllm:num_requests_running": 2,
        "vllm:num_requests_waiting": 4,
        "vllm:kv_cache_usage_perc": 0,
        "vllm:admission_rejections_total": 2,
    }
