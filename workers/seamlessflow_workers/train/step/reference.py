"""The reference of a job: a frozen copy of the initial policy, from which the KL divergence is taken.

Under ZeRO-3 its weights are partitioned like the policy's, by a second engine that only computes; else every rank has a
copy on its device. It takes the same inputs as the policy and returns the same figures.
"""

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from seamlessflow.core.job_spec import JobSpec
from seamlessflow_workers.train.step.deepspeed_config import reference_config
from seamlessflow_workers.train.step.policy import Policy
from seamlessflow_workers.train.step.process_group import deepspeed


class ReferenceModel:
    def __init__(self, module: nn.Module, release: Callable[[], None]) -> None:
        self.module = module  # called like the policy
        self.release = release  # weights that it gathered from other ranks


def reference_copied(policy: Policy, device: torch.device) -> ReferenceModel:
    """Return a whole copy of `policy` on the device."""
    return ReferenceModel(copy.deepcopy(policy).to(device).requires_grad_(False), lambda: None)


def reference_partitioned(policy: Policy, spec: JobSpec) -> ReferenceModel:
    """Return a reference that owns `policy`, whose parameters are partitioned. All ranks call it together."""
    policy.requires_grad_(False)
    engine: Any
    engine, *_ = deepspeed.initialize(model=policy, config=reference_config(spec))
    return ReferenceModel(engine.module, engine.optimizer.empty_partition_cache)
