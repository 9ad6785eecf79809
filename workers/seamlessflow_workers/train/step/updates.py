"""Makes the optimizer steps of a batch: one for each mini-batch and epoch, of the policy and of its critic.

It takes one rank's micro-batches of each mini-batch and functions that compute loss and logprobs, and returns metrics.
Order and learning rates depend only on the batch's number, the seed and the number of the first step, so a batch that
was cut off is repeated to the bit.
"""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain
from typing import Any, Protocol

import torch
from numpy.typing import NDArray
from torch import Tensor

from seamlessflow.core.algorithms.options import ProximalPolicy
from seamlessflow.core.batching.format import BatchHeader
from seamlessflow.core.batching.mini_batches import mini_batch_steps
from seamlessflow.core.job_spec import Dtype, JobSpec
from seamlessflow_workers.train.step.critic import Critic
from seamlessflow_workers.train.step.metrics import (
    StepStatistics,
    Stopwatch,
    last_step_metrics,
    statistics_of_all_ranks,
    update_metrics,
)
from seamlessflow_workers.train.step.micro_batches import MicroBatch
from seamlessflow_workers.train.step.optimizer_step import LocalMicroBatch, make_optimizer_step


class LossOf(Protocol):
    def __call__(
        self,
        local: LocalMicroBatch,
        *,
        temperature: float,
        version: int | None,
        records: Sequence[Callable[..., None]],
    ) -> Tensor:
        """Return the loss of a micro-batch, and pass its statistics on if it counts.

        `version` is that of the weights, if they are exactly those of a version.
        """
        ...


class Updates:
    """Makes the updates of one engine. All ranks call it together. Not thread-safe."""

    def __init__(
        self,
        spec: JobSpec,
        engine: Any,
        optimizer: torch.optim.Optimizer,
        device: torch.device,
        *,
        loss: LossOf,
        logprobs: Callable[[MicroBatch, float], Tensor],
        critic: Critic | None,
    ) -> None:
        """`engine` is DeepSpeed's, with `optimizer`; `logprobs` takes a micro-batch and a temperature, returns [N]."""
        self._spec, self._engine, self._optimizer, self._device = spec, engine, optimizer, device
        self._loss, self._logprobs, self._critic = loss, logprobs, critic
        lora = spec.train.lora
        self._has_dropout = lora is not None and lora.dropout > 0
        self._is_decoupled = spec.algorithm.off_policy.proximal is ProximalPolicy.CURRENT
        # ZeRO 0 in float32, where DeepSpeed neither keeps nor checks the gradient's norm.
        self._is_plain = spec.train.zero_stage == 0 and spec.model.dtype is Dtype.FLOAT32
        # At the beginning, in which only the critic learns.
        self._num_critic_steps = spec.algorithm.critic.warmup_updates * spec.train.num_steps_per_update

    def learning_rate(self, optimizer_step: int) -> float:
        """Return the policy's learning rate in step number `optimizer_step` (from 1)."""
        train = self._spec.train
        num_warmup_steps = train.warmup_updates * train.num_steps_per_update
        num_steps = max(0, optimizer_step - self._num_critic_steps)
        return train.learning_rate * min(1.0, num_steps / max(1, num_warmup_steps))

    def make(
        self,
        mini_batches: Sequence[Sequence[LocalMicroBatch]],
        header: BatchHeader,
        step_version: int,
        first_step: int,
        statistics: StepStatistics,
        watch: Stopwatch,
    ) -> dict[str, float]:
        """Make the optimizer steps of a batch, of which `first_step` is the number of the first; return metrics."""
        spec, temperature = self._spec, header.temperature
        steps = mini_batch_steps(
            [bool(local_batches) for local_batches in mini_batches],
            spec.train.epochs,
            seed=spec.seed,
            batch_number=header.number,
        )
        is_critic_alone = first_step <= self._num_critic_steps
        if self._is_decoupled and len(steps) > 1 and not is_critic_alone:
            with watch.timer("proximal"):
                first = None if self._has_dropout else steps[0].mini_batch
                later = [
                    local_batches for number, local_batches in enumerate(mini_batches) if number != first
                ]
                self._keep_start_logprobs(later, temperature, step_version, statistics)
        last = StepStatistics(spec.algorithm, has_sampler=statistics.has_sampler)
        record = partial(
            statistics.add,
            weight=1 / spec.train.epochs,
            loss_weight=1 / max(1, len(steps)),
            current_weight=1.0,
        )
        grad_norms = []
        for number, step in enumerate(steps, start=1):
            local_batches = mini_batches[step.mini_batch]
            if self._critic is not None:
                self._critic.step(local_batches, watch)
            if is_critic_alone:
                continue
            for group in self._optimizer.param_groups:
                group["lr"] = self.learning_rate(first_step + step.offset)
            records: list[Callable[..., None]] = [record, *([last.add] if 1 < number == len(steps) else [])]
            # After the first step the weights are no longer exactly those of any sampler.
            version = step_version if number == 1 else None
            loss = partial(self._loss, temperature=temperature, version=version, records=records)
            grad_norms.append(
                make_optimizer_step(self._engine, local_batches, loss, watch, is_plain=self._is_plain)
            )
        metrics = update_metrics(grad_norms)
        if self._critic is not None:
            metrics |= self._critic.metrics()
        if len(grad_norms) > 1:
            metrics |= last_step_metrics(statistics_of_all_ranks(last, self._device))
        return metrics

    @torch.no_grad()
    def _keep_start_logprobs(
        self,
        mini_batches: Sequence[Sequence[LocalMicroBatch]],
        temperature: float,
        step_version: int,
        statistics: StepStatistics,
    ) -> None:
        """Compute the proximal policy's logprobs of tokens that are trained when the weights have moved on."""
        self._engine.module.use_dropout(False)
        for local in chain.from_iterable(mini_batches):
            micro_batch = local.micro_batch
            local.start_logprobs = self._logprobs(micro_batch, temperature)
            if local.counts:
                is_current = self._tensor(micro_batch.versions) == step_version
                difference = local.start_logprobs - self._tensor(micro_batch.behaviour_logprobs)
                statistics.add_mismatch(difference[is_current])
        self._engine.module.use_dropout(True)

    def _tensor(self, array: NDArray[Any]) -> Tensor:
        return torch.from_numpy(array).to(self._device)
