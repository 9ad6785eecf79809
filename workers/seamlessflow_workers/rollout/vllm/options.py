"""Settings of vLLM: takes our flags and returns vLLM's engine arguments and environment.

On a CPU: eager execution (compiling costs more than it saves at that size), small cache blocks (the default of 128
tokens never hits on short prompts), and a cache sized for the sequences that may run. On CUDA: vLLM's own defaults, and
sleep mode, so that a trainer on the same device can use its memory. The job's own options of vLLM come last; the
job's spec accepts only arguments that the platform leaves open.
"""

import argparse
import json
import os
import secrets
from pathlib import Path
from typing import Any

CPU_BLOCK_SIZE = 32  # tokens; kernels want a multiple of 32
CPU_CACHE_FACTOR = 2  # times what all running sequences can fill; the rest keeps prefixes
MIN_CPU_CACHE_BYTES = 64 << 20
UNKNOWN_CPU_CACHE_BYTES = 1 << 30
BYTES_PER_NUMBER = {"float32": 4, "bfloat16": 2}
# Read by vLLM when it is imported, in each of its processes.
ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "TOKENIZERS_PARALLELISM": "false",
    "VLLM_WORKER_MULTIPROC_METHOD": "spawn",
}
# vLLM would compile small kernels at their first use, which needs a C++ compiler and many seconds of CPU time.
CPU_ENVIRONMENT = {"TORCHDYNAMO_DISABLE": "1"}
WORKER_EXTENSION = (
    "seamlessflow_workers.rollout.vllm.weight_transfer.WeightFiles"  # registers the backend as well
)
GUIDE_MASKS = "seamlessflow_workers.rollout.vllm.guide_masks:GuideMasks"
WEIGHT_TRANSFER = "seamlessflow"  # the backend's name
_NUM_EXPERTS = ("num_experts", "n_routed_experts", "num_local_experts")  # as families name it


def set_environment(device: str, *, device_cores: str | None = None) -> None:
    """Set vLLM's environment variables, except those that are already set. `device_cores`: one set for each worker."""
    if device == "cpu" and device_cores is not None:
        os.environ["VLLM_CPU_OMP_THREADS_BIND"] = device_cores
    for name, value in {**ENVIRONMENT, **(CPU_ENVIRONMENT if device == "cpu" else {})}.items():
        os.environ.setdefault(name, value)


def engine_arguments(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the keyword arguments of `AsyncEngineArgs`."""
    common: dict[str, Any] = {
        "model": str(arguments.model),
        "dtype": arguments.dtype,
        "max_model_len": arguments.max_model_len,
        "max_num_seqs": arguments.slots,
        # Tokens in, tokens out: the gateway handles text.
        "skip_tokenizer_init": True,
        # Report the logprobs of the sampled distribution, temperature and truncation included.
        "logprobs_mode": "processed_logprobs",
        # Engines of one job must not draw the same numbers, nor a restarted engine repeat itself.
        "seed": secrets.randbits(31) if arguments.seed is None else arguments.seed,
        "worker_extension_cls": WORKER_EXTENSION,
        "weight_transfer_config": {"backend": WEIGHT_TRANSFER},
        "trust_remote_code": False,
        "generation_config": "vllm",
        "enable_prefix_caching": True,
        "use_tqdm_on_load": False,
        "tensor_parallel_size": arguments.tensor_parallel,
        "pipeline_parallel_size": arguments.pipeline_parallel,
        "enable_expert_parallel": arguments.expert_parallel,
    }
    asked: dict[str, Any] = arguments.engine_args
    return common | _of_device(arguments) | asked


def _of_device(arguments: argparse.Namespace) -> dict[str, Any]:
    if arguments.device == "cpu":
        cache_bytes = cpu_cache_bytes(
            arguments.model, arguments.dtype, num_tokens=arguments.slots * arguments.max_model_len
        )
        return {
            # CUDA's model runner knows other processors, so guided answers are refused there.
            "logits_processors": [GUIDE_MASKS],
            "enforce_eager": True,
            "block_size": CPU_BLOCK_SIZE,
            # Of each worker, which has its slice of the heads and layers.
            "kv_cache_memory_bytes": max(
                MIN_CPU_CACHE_BYTES, cache_bytes // (arguments.tensor_parallel * arguments.pipeline_parallel)
            ),
        }
    return {
        "enable_sleep_mode": True,
        "gpu_memory_utilization": arguments.gpu_memory_utilization,
    }


def refusal(model: Path, device: str) -> str | None:
    """Return why vLLM is not asked to serve the model on this device; None if it is."""
    try:
        config = json.loads((model / "config.json").read_text())
    except (OSError, ValueError):
        return None  # vLLM will report its error
    if device != "cpu" or not any(config.get(name) for name in _NUM_EXPERTS):
        return None
    return (
        "vLLM's build for CPUs computes mixtures of experts wrongly once their weights were updated; use "
        "rollout.engine embedded, or a GPU"
    )


def cpu_cache_bytes(model: Path, dtype: str, *, num_tokens: int) -> int:
    """Return the bytes of keys and values of `num_tokens`, and as much again for prefixes."""
    try:
        config = json.loads((model / "config.json").read_text())
        num_heads = config.get("num_key_value_heads") or config["num_attention_heads"]
        width = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
        per_token = 2 * config["num_hidden_layers"] * num_heads * width * BYTES_PER_NUMBER[dtype]
    except (OSError, ValueError, KeyError, TypeError):
        return UNKNOWN_CPU_CACHE_BYTES  # vLLM will report the error of the model, if any
    return max(MIN_CPU_CACHE_BYTES, int(CPU_CACHE_FACTOR * num_tokens * per_token))
