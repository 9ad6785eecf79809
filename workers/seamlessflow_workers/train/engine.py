"""The DeepSpeed engine behind the trainer: one batch in, one optimizer step, metrics out.

Device-agnostic: NCCL where CUDA is, else gloo on the processor. Learning rate and step depend on the batch number only,
so the same batches from the same start give bit-equal weights. A batch without anything to train leaves the parameters
and the optimizer untouched.
"""

import copy
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from seamlessflow.core.batching.format import Batch
from seamlessflow.core.job_spec import Dtype, JobSpec
from seamlessflow_workers.train.distributed import deepspeed, process_group_start, training_device
from seamlessflow_workers.train.loss import StepStatistics, TokenTargets, token_loss
from seamlessflow_workers.train.micro_batches import MicroBatch, TrainPlan, plan_batch
from seamlessflow_workers.train.policy import Policy, policy_load
from seamlessflow_workers.weights.publish import RawTensor

_SAFETENSORS_DTYPES = {torch.float32: "F32", torch.bfloat16: "BF16"}
_PREFIX = "model."  # of the wrapper in train.policy
_MAX_MICRO_BATCH_TOKENS_CPU = 2048  # beyond it the activations leave the processor's cache (a fifth slower)


@dataclass(slots=True)
class Stopwatch:
    """Seconds by part; parts may recur. On CUDA a part ends when its kernels have."""

    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        started_s = time.monotonic()
        yield
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        self.seconds[name] = self.seconds.get(name, 0.0) + time.monotonic() - started_s


def engine_load(model_path: Path, spec: JobSpec) -> "TrainEngine":
    """Raises ModelLoadError."""
    process_group_start()
    return TrainEngine(model_path, spec)


class TrainEngine:
    """Owns policy, optimizer and (when kl_coef > 0) a frozen copy of the initial policy. Not thread-safe."""

    def __init__(self, model_path: Path, spec: JobSpec) -> None:
        """Needs `process_group_start` before. Raises ModelLoadError."""
        self._spec = spec
        self._device = training_device()
        self._micro_batch_tokens = spec.train.micro_batch_tokens
        if self._device.type == "cpu":
            self._micro_batch_tokens = min(self._micro_batch_tokens, _MAX_MICRO_BATCH_TOKENS_CPU)
        torch.manual_seed(spec.seed)
        policy = policy_load(model_path, spec.model.dtype)
        self._head_name = policy.head_name
        self._reference = self._freeze(policy) if spec.algorithm.kl_coef > 0 else None
        optimizer = torch.optim.AdamW(
            policy.parameters(),
            lr=spec.train.learning_rate,
            betas=spec.train.adam_betas,
            weight_decay=spec.train.weight_decay,
        )
        self._engine, self._optimizer, _, _ = deepspeed.initialize(
            model=policy, optimizer=optimizer, config=_deepspeed_config(spec)
        )

    def step(self, batch: Batch, *, step_version: int, optimizer_step: int) -> dict[str, float]:
        """Train on a batch as step number `optimizer_step` (from 1), with weights of `step_version` before it."""
        watch = Stopwatch()
        with watch.part("step"):
            plan = plan_batch(
                batch,
                step_version=step_version,
                max_staleness=self._spec.algorithm.max_staleness,
                micro_batch_tokens=self._micro_batch_tokens,
                is_kl_on=self._reference is not None,
            )
            learning_rate = self._set_learning_rate(optimizer_step)
            statistics = StepStatistics(self._spec.algorithm)
            grad_norm = self._train(plan, batch.header.temperature, step_version, statistics, watch)
        return {
            **_batch_metrics(batch, plan),
            **statistics.metrics(),
            **({} if grad_norm is None else {"train/grad_norm": grad_norm}),
            "train/learning_rate": learning_rate,
            **{f"train/{name}_s": seconds for name, seconds in watch.seconds.items()},
        }

    def tensors(self) -> dict[str, RawTensor]:
        """All weights in the job's number format; the output head also where it is tied to the embeddings."""
        policy = self._engine.module
        assert isinstance(policy, Policy)
        with deepspeed.zero.GatheredParameters(list(policy.parameters()), modifier_rank=None):
            raw = {name.removeprefix(_PREFIX): _raw(tensor) for name, tensor in policy.named_parameters()}
            # Engines keep packed copies of the head: a head that is not sent would stay at its old value.
            if self._head_name not in raw:
                raw[self._head_name] = _raw(policy.model.get_output_embeddings().weight)  # type: ignore[operator]
        return raw

    def state_save(self, folder: Path, tag: str) -> None:
        """Write parameters, optimizer and random state below `folder/tag`."""
        random_state = {"cpu": torch.get_rng_state()}
        if torch.cuda.is_available():
            random_state["cuda"] = torch.cuda.get_rng_state()
        client_state = {"random_state": random_state}
        self._engine.save_checkpoint(str(folder), tag=tag, client_state=client_state, save_latest=False)

    def state_load(self, folder: Path, tag: str) -> None:
        path, client_state = self._engine.load_checkpoint(str(folder), tag=tag)
        if path is None:
            raise FileNotFoundError(f"DeepSpeed found no checkpoint {tag!r} in {folder}")
        torch.set_rng_state(client_state["random_state"]["cpu"])
        if torch.cuda.is_available():
            torch.cuda.set_rng_state(client_state["random_state"]["cuda"])

    def _freeze(self, policy: Policy) -> Policy:
        reference = copy.deepcopy(policy).to(self._device)
        return reference.requires_grad_(False)

    def _set_learning_rate(self, optimizer_step: int) -> float:
        train = self._spec.train
        learning_rate = train.learning_rate * min(1.0, optimizer_step / max(1, train.warmup_updates))
        for group in self._optimizer.param_groups:
            group["lr"] = learning_rate
        return learning_rate

    def _train(
        self,
        plan: TrainPlan,
        temperature: float,
        step_version: int,
        statistics: StepStatistics,
        watch: Stopwatch,
    ) -> float | None:
        """One optimizer step over all micro-batches; the norm of the gradient before clipping, None without a step."""
        grad_norm = None
        for number, micro_batch in enumerate(plan.micro_batches, start=1):
            is_last = number == len(plan.micro_batches)
            self._engine.set_gradient_accumulation_boundary(is_last)
            with watch.part("forward"):
                loss = self._loss(micro_batch, plan, temperature, step_version, statistics)
            with watch.part("backward"):
                self._engine.backward(loss, scale_wrt_gas=False)
            with watch.part("optimizer"):
                if is_last and self._spec.train.zero_stage == 0:
                    grad_norm = self._unpartitioned_grad_norm()
                self._engine.step()
        if plan.micro_batches and grad_norm is None:
            grad_norm = float(self._engine.get_global_grad_norm())
        return grad_norm

    def _loss(
        self,
        micro_batch: MicroBatch,
        plan: TrainPlan,
        temperature: float,
        step_version: int,
        statistics: StepStatistics,
    ) -> Tensor:
        token_ids, rows, columns, tokens, behaviour, positive, negative, weights, versions = (
            torch.from_numpy(array).to(self._device)
            for array in (
                micro_batch.token_ids,
                micro_batch.rows,
                micro_batch.columns,
                micro_batch.targets,
                micro_batch.behaviour_logprobs,
                micro_batch.advantages_positive,
                micro_batch.advantages_negative,
                micro_batch.loss_weights,
                micro_batch.versions,
            )
        )
        inputs = (token_ids, rows, columns, tokens, temperature)
        reference_logprobs = None
        if self._reference is not None:
            with torch.no_grad():
                reference_logprobs, _ = self._reference(*inputs)
        logprobs, entropies = self._engine(*inputs)
        targets = TokenTargets(
            behaviour_logprobs=behaviour,
            advantages_positive=positive,
            advantages_negative=negative,
            loss_weights=weights,
            is_current=versions == step_version,
            reference_logprobs=reference_logprobs,
        )
        loss = token_loss(logprobs, targets, self._spec.algorithm, loss_weight=plan.loss_weight)
        statistics.add(loss=loss, logprobs=logprobs, entropies=entropies, targets=targets)
        return loss

    def _unpartitioned_grad_norm(self) -> float:
        """ZeRO 0 in float32 keeps no norm of its own."""
        gradients = [p.grad for p in self._engine.module.parameters() if p.grad is not None]
        return float(torch.nn.utils.get_total_norm(gradients))


def _deepspeed_config(spec: JobSpec) -> dict[str, Any]:
    return {
        "train_micro_batch_size_per_gpu": 1,  # unused: we own the accumulation boundary and the scale of the loss
        "gradient_accumulation_steps": 1,
        "gradient_clipping": spec.train.max_grad_norm,
        "zero_optimization": {"stage": spec.train.zero_stage},
        "zero_allow_untested_optimizer": True,  # torch's AdamW: needs no compiler on the machine
        "bf16": {"enabled": spec.model.dtype is Dtype.BFLOAT16},
        "steps_per_print": 10**9,
    }


def _batch_metrics(batch: Batch, plan: TrainPlan) -> dict[str, float]:
    metrics = {
        "reward/mean": batch.header.reward_mean,
        "reward/std": batch.header.reward_std,
        "train/num_tokens": float(plan.num_tokens),
        "train/num_trained_tokens": float(plan.num_trained_tokens),
        "train/num_stale_samples": float(plan.num_stale_samples),
    }
    if plan.staleness_mean is not None and plan.staleness_max is not None:
        metrics["train/staleness_mean"] = plan.staleness_mean
        metrics["train/staleness_max"] = float(plan.staleness_max)
    return metrics


def _raw(tensor: Tensor) -> RawTensor:
    """A copy: the file is written while nothing else may change it, and gathered parameters go away."""
    data = tensor.detach().to("cpu", copy=True).contiguous().reshape(-1).view(torch.uint8).numpy()
    return RawTensor(
        dtype=_SAFETENSORS_DTYPES[tensor.dtype],
        shape=tuple(tensor.shape),
        data=data.data,
        num_bytes=data.nbytes,
    )
