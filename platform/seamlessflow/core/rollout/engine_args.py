"""The arguments of vLLM that a job may set, and why it may not set the others.

Only arguments are accepted that change how fast an engine is and how much memory it takes. What the platform itself
decides (the model, its number format, parallelism, sampling, how weights arrive) and everything that could load code is
refused by name.
"""

import difflib
from typing import Annotated

from pydantic import BeforeValidator


def _plain(given: object) -> object:
    """Refuse anything but a plain value, in one sentence; a union type would report one fault per branch."""
    if not isinstance(given, bool | int | float | str):
        raise ValueError(f"must be a number, a text, true or false, got {str(given)[:100]!r}")
    return given


EngineArgument = Annotated[bool | int | float | str, BeforeValidator(_plain)]
ACCEPTED = frozenset(
    {
        "all2all_backend",
        "async_scheduling",
        "attention_backend",
        "block_size",
        "cpu_offload_gb",
        "disable_cascade_attn",
        "disable_custom_all_reduce",
        "enable_chunked_prefill",
        "enable_eplb",
        "enable_prefix_caching",
        "enforce_eager",
        "gpu_memory_utilization",
        "kv_cache_dtype",
        "kv_cache_memory_bytes",
        "long_prefill_token_threshold",
        "max_cudagraph_capture_size",
        "max_long_partial_prefills",
        "max_num_batched_tokens",
        "max_num_partial_prefills",
        "max_parallel_loading_workers",
        "num_gpu_blocks_override",
        "scheduling_policy",
    }
)
# What says the same in the job spec.
OWNED = {
    "model": "model.source",
    "dtype": "model.dtype",
    "max_model_len": "model.max_model_len",
    "max_num_seqs": "rollout.max_num_seqs",
    "tensor_parallel_size": "rollout.parallel.tensor",
    "pipeline_parallel_size": "rollout.parallel.pipeline",
    "enable_expert_parallel": "rollout.parallel.expert",
    "weight_transfer_config": "train.weight_transport",
}


def refusal_of(name: str) -> str | None:
    """Return why a job may not set this argument; None if it may."""
    if name in ACCEPTED:
        return None
    if name in OWNED:
        return f"the platform sets it; use {OWNED[name]}"
    near = difflib.get_close_matches(name, ACCEPTED, n=1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    return f"a job may not set it; {hint}accepted: {', '.join(sorted(ACCEPTED))}"
