"""DeepSpeed's configuration for a job: takes its spec and returns what `deepspeed.initialize` expects.

Sizes are numbers of elements. Stage 3's limits are below DeepSpeed's defaults (a billion), with which a rank would keep
a model of a billion weights whole between forward and backward pass, and AdamW would need twice a rank's weights for
what it computes between them.
"""

from typing import Any

import torch

from seamlessflow.core.job_spec import Dtype, JobSpec
from seamlessflow.core.training.memory import gradient_dtype
from seamlessflow_workers.train.step.expert_ranks import expert_settings

_BUCKET = 50_000_000  # of gradients that are reduced together, and of weights that are fetched ahead
_LIVE = (
    100_000_000  # weights that are gathered at a time; DeepSpeed's 10^9 would be a whole model of that size
)
# Of a rank's weights, which the optimizer steps together: intermediate values of torch's AdamW take twice their bytes.
_GROUP = 50_000_000
_NAMES = {Dtype.FLOAT32: "fp32", Dtype.BFLOAT16: "bf16"}


def deepspeed_config(spec: JobSpec, device: torch.device) -> dict[str, Any]:
    """Return the configuration of the engine that trains."""
    return {
        **expert_settings(spec, device),
        **_common(spec),
        "gradient_clipping": spec.train.max_grad_norm,
        "zero_allow_untested_optimizer": True,  # torch's AdamW, which needs no compiler on the machine
        "zero_force_ds_cpu_optimizer": False,  # nor on the host
        "zero_optimization": {**_zero(spec.train.zero_stage), **_offloaded(spec)},
        **_gradients(spec),
    }


def reference_config(spec: JobSpec) -> dict[str, Any]:
    """Return the configuration of an engine that only computes with partitioned weights."""
    return {**_common(spec), "zero_optimization": _zero(stage=3)}


def _common(spec: JobSpec) -> dict[str, Any]:
    return {
        "train_micro_batch_size_per_gpu": 1,  # unused: we set the accumulation boundary and scale the loss
        "gradient_accumulation_steps": 1,
        "bf16": {"enabled": spec.model.dtype is Dtype.BFLOAT16},
        "steps_per_print": 10**9,
    }


def _zero(stage: int) -> dict[str, Any]:
    if stage < 3:
        return {"stage": stage}
    return {
        "stage": stage,
        "reduce_bucket_size": _BUCKET,
        "stage3_prefetch_bucket_size": _BUCKET,
        "stage3_max_live_parameters": _LIVE,
        "stage3_max_reuse_distance": _LIVE,
        "sub_group_size": _GROUP,
    }


def _offloaded(spec: JobSpec) -> dict[str, Any]:
    if not spec.train.offload.optimizer:
        return {}
    return {"offload_optimizer": {"device": "cpu", "pin_memory": torch.cuda.is_available()}}


def _gradients(spec: JobSpec) -> dict[str, Any]:
    """Add gradients up, over micro-batches and over ranks, in the format that the spec names."""
    if not spec.train.zero_stage or spec.train.parallel.expert > 1:
        return {}  # in the model's format
    name = _NAMES[gradient_dtype(spec.train, spec.model.dtype)]
    return {"data_types": {"grad_accum_dtype": name}, "communication_data_type": name}
