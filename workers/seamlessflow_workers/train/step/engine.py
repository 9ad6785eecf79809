"""The DeepSpeed engine behind the trainer: it takes a batch, makes its optimizer steps and returns metrics.

It runs on CUDA with NCCL, else on the CPU with gloo. Learning rate and step depend only on the batch number, so the
same batches from the same start give bit-equal weights. A batch without anything to train leaves the parameters and the
optimizer untouched, and so does one whose gradient is not finite.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from seamlessflow.core.algorithms.advantage import Floats
from seamlessflow.core.algorithms.kl_shaping import kl_estimates
from seamlessflow.core.algorithms.options import ProximalPolicy
from seamlessflow.core.batching.critic_rewards import critic_into_advantages
from seamlessflow.core.batching.format import Batch
from seamlessflow.core.batching.kl_rewards import kl_into_rewards
from seamlessflow.core.batching.mini_batches import mini_batches_cut
from seamlessflow.core.job_spec import JobSpec
from seamlessflow_workers.train.sequence_parallel.collectives import sequence_group
from seamlessflow_workers.train.state.background import StateWriter
from seamlessflow_workers.train.state.saving import state_read, state_write, state_written
from seamlessflow_workers.train.step.critic import Critic
from seamlessflow_workers.train.step.deepspeed_config import deepspeed_config
from seamlessflow_workers.train.step.expert_ranks import expert_shards, grouped_by_experts
from seamlessflow_workers.train.step.forward_pass import ForwardPass
from seamlessflow_workers.train.step.guide_masks import BatchMasks, MaskMaker, without_unknown
from seamlessflow_workers.train.step.loss import TokenTerms, policy_loss
from seamlessflow_workers.train.step.metrics import (
    StepStatistics,
    Stopwatch,
    batch_metrics,
    mask_metrics,
    speeds,
    statistics_of_all_ranks,
)
from seamlessflow_workers.train.step.micro_batches import MicroBatch, TrainPlan, plan_batch
from seamlessflow_workers.train.step.offload import StatesMover, device_use
from seamlessflow_workers.train.step.optimizer_step import LocalMicroBatch
from seamlessflow_workers.train.step.policy import Policy, policy_load
from seamlessflow_workers.train.step.process_group import deepspeed, training_device
from seamlessflow_workers.train.step.published import PublishedTensors
from seamlessflow_workers.train.step.publishing import shards_of_all_ranks
from seamlessflow_workers.train.step.reference import ReferenceModel, reference_copied, reference_partitioned
from seamlessflow_workers.train.step.updates import Updates
from seamlessflow_workers.train.step_engine import DeviceUse
from seamlessflow_workers.weights.freed_memory import freed_memory_return
from seamlessflow_workers.weights.manifest import ShardEntry
from seamlessflow_workers.weights.model_folder import folder_shapes
from seamlessflow_workers.weights.sealed_shards import SealedShards
from seamlessflow_workers.weights.tensors import RawTensor, TensorLayout
from seamlessflow_workers.weights.transports.file.shards import ShardOrder

_PARTITIONED_WEIGHTS = 3  # ZeRO stage
_MAX_MICRO_BATCH_TOKENS_CPU = (
    2048  # beyond it the activations do not fit the processor's cache, which is a fifth slower
)


class TrainEngine:
    """Owns policy, optimizer and, if the algorithm needs one, a reference.

    With an adapter, the policy without the adapter is the reference. Not thread-safe.
    """

    def __init__(self, model_path: Path, spec: JobSpec) -> None:
        """Call `process_group_start` first. Raises ModelLoadError."""
        self._spec = spec
        self._device = training_device()
        self._forward = ForwardPass(self._device, sequence_group(spec.train.parallel.sequence))
        self._micro_batch_tokens = spec.train.micro_batch_tokens
        if self._device.type == "cpu":
            most = _MAX_MICRO_BATCH_TOKENS_CPU * self._forward.group.size
            self._micro_batch_tokens = min(self._micro_batch_tokens, most)
        torch.manual_seed(spec.seed)
        load_policy = partial(
            policy_load,
            model_path,
            spec.model.dtype,
            in_parts=spec.train.zero_stage == _PARTITIONED_WEIGHTS and spec.train.parallel.expert == 1,
            is_tree=spec.train.tree,
            has_gradient_checkpoints=spec.train.gradient_checkpointing,
            keeps_inputs_on_host=spec.train.offload.activations,
            has_entropy_gradient=spec.algorithm.entropy_coef > 0,
            lora=spec.train.lora,
            source=spec.model.source,
            freeze_router=spec.train.freeze_router,
            sequence_group=self._forward.group,
            max_model_len=spec.model.max_model_len,
        )
        policy = load_policy()
        self._mask_maker = MaskMaker(model_path, num_tokens=policy.num_logits)
        self._adapter = policy.adapter
        self.adapter_config = policy.adapter.config if policy.adapter else None
        self._reference: ReferenceModel | None = None
        if spec.algorithm.needs_reference and policy.adapter is None:
            self._reference = (
                reference_partitioned(load_policy(), spec)
                if policy.is_partitioned
                else reference_copied(policy, self._device)
            )
        self._engine, self._optimizer, _, _ = deepspeed.initialize(
            model=policy, config=deepspeed_config(spec, self._device), **_optimizer_of(policy, spec)
        )
        self._expert_shards = expert_shards(policy)
        self._writer = StateWriter(num_sharing=spec.on_devices(1).train.known_num_ranks)
        self._published = PublishedTensors(policy, folder_shapes(model_path))
        self._mover = StatesMover(self._engine, self._reference, self._device)
        self._critic = self._critic_load(model_path) if spec.algorithm.needs_critic else None
        self._updates = Updates(
            spec,
            self._engine,
            self._optimizer,
            self._device,
            loss=self._loss,
            logprobs=self._logprobs,
            critic=self._critic,
        )
        freed_memory_return()  # DeepSpeed has copied the weights; the blocks that it freed stay in the heap

    def step(self, batch: Batch, *, step_version: int, optimizer_step: int) -> dict[str, float]:
        """Train on a batch, from step number `optimizer_step` (from 1) on; `step_version` is the version before it."""
        if self._has_dropout:
            # Dropout depends only on the step, so a resumed trainer drops the same.
            torch.manual_seed(hash((self._spec.seed, optimizer_step, torch.distributed.get_rank())))
        watch = Stopwatch()
        with watch.timer("step"):
            kl: dict[str, float] = {}
            with watch.timer("masks"):
                masks = self._mask_maker.masks(batch)
                batch = batch if masks is None else without_unknown(batch, masks)
            token_kl = None
            if self._spec.algorithm.is_kl_in_reward:
                with watch.timer("reference"):
                    reference, token_kl = self._reference_kl(batch, step_version, masks)
                    kl["train/kl_reference"] = _mean(token_kl[batch.loss_mask != 0])
                    if self._critic is None:
                        batch = kl_into_rewards(batch, reference, self._spec.algorithm)
            if self._critic is not None:
                with watch.timer("values"):
                    batch = self._values_into_advantages(self._critic, batch, step_version, masks, token_kl)
            plan = self._plan(batch, step_version, masks)
            statistics = StepStatistics(self._spec.algorithm, has_sampler=not self._spec.data.is_offline)
            with watch.timer("measure"):
                self._measure(plan, batch.header.temperature, step_version, statistics)
            mini_batches = [self._own(micro_batches) for micro_batches in plan.mini_batches]
            update = self._updates.make(
                mini_batches, batch.header, step_version, optimizer_step, statistics, watch
            )
        num_steps = self._spec.train.num_steps_per_update
        return {
            **batch_metrics(batch, plan),
            **({} if masks is None else mask_metrics(batch, masks)),
            **statistics_of_all_ranks(statistics, self._device).metrics(),
            **kl,
            **speeds(plan, watch, num_epochs=self._spec.train.epochs),
            **update,
            "train/learning_rate": self._updates.learning_rate(optimizer_step + num_steps - 1),
            **{f"train/{name}_s": seconds for name, seconds in watch.seconds.items()},
        }

    def layouts(self) -> Mapping[str, TensorLayout]:
        """Return the layouts of the published tensors, in the job's number format.

        That is all weights by their names in the model folder, or those of the adapter.
        """
        return self._published.layouts()

    def tensors(self, names: Sequence[str] | None = None) -> dict[str, RawTensor]:
        """Return some of them, or all, with their values. All ranks must ask for the same."""
        return self._published.tensors(names)

    def shards_write(self, order: ShardOrder, sealed: SealedShards | None = None) -> dict[str, ShardEntry]:
        """Write this rank's shards and return the entries of all ranks. Raises OSError on all ranks."""
        train = self._spec.train
        return shards_of_all_ranks(
            order,
            self.layouts(),
            lambda names, is_own: self._published.tensors(names, keeps=is_own),
            sealed=sealed,
            gathers_together=train.zero_stage == _PARTITIONED_WEIGHTS or train.parallel.expert > 1,
            device=self._device,
        )

    def state_save(self, folder: Path, tag: str) -> None:
        """Begin to write this rank's parameters, optimizers and random state to `folder`."""
        state_write(self._engine, self._expert_shards, folder / tag, self._writer)
        if self._critic is not None:
            self._critic.state_save(folder, tag)

    def state_saved(self, *, waits: bool) -> bool:
        """Return whether every rank has written its file; with `waits` only then."""
        is_saved = state_written(self._writer, self._device, waits=waits)
        if self._critic is not None:
            is_saved = self._critic.state_saved(waits=waits) and is_saved
        return is_saved

    def state_load(self, folder: Path, tag: str) -> None:
        """Read what ranks of any number wrote, without running any code. Raises CheckpointReadError."""
        if self._critic is not None:
            self._critic.state_load(folder, tag)
        state_read(self._engine, self._expert_shards, folder / tag)

    def offload(self) -> DeviceUse:
        """Move the states to the host. On a CPU there is nothing to do."""
        if self._device.type != "cuda":
            return DeviceUse()
        freed_bytes = self._mover.take_away() + (self._critic.offload() if self._critic is not None else 0)
        return device_use(self._device, freed_bytes=freed_bytes)

    def reload(self) -> None:
        self._mover.bring_back()
        if self._critic is not None:
            self._critic.reload()

    def _critic_load(self, model_path: Path) -> Critic:
        config = deepspeed_config(self._spec, self._device)
        return Critic(model_path, self._spec, config=config, device=self._device)

    def _plan(
        self, batch: Batch, step_version: int, masks: BatchMasks | None, *, computes_all: bool = False
    ) -> TrainPlan:
        return plan_batch(
            batch,
            step_version=step_version,
            algorithm=self._spec.algorithm,
            aggregation_constant=self._spec.aggregation_constant,
            micro_batch_tokens=self._micro_batch_tokens,
            computes_all=computes_all,
            is_tree=self._spec.train.tree,
            is_offline=self._spec.data.is_offline,
            masks=masks,
            num_sharing=self._forward.group.size,
            mini_batches=mini_batches_cut(
                batch.groups,
                self._spec.train.minibatches,
                seed=self._spec.seed,
                batch_number=batch.header.number,
            ),
        )

    @torch.no_grad()
    def _measure(
        self, plan: TrainPlan, temperature: float, step_version: int, statistics: StepStatistics
    ) -> None:
        """Add some samples without a gradient to the metrics by a forward pass; they stand for all of them.

        Groups that are solved or hopeless have no advantages, and their entropy differs from that of the others.
        Without them the means would describe only tasks about which the policy is still unsure.
        """
        record = partial(statistics.add, weight=plan.measured_weight)
        for local in self._own(plan.measured):
            self._loss(local, temperature=temperature, version=step_version, records=[record])

    def _values_into_advantages(
        self,
        critic: Critic,
        batch: Batch,
        step_version: int,
        masks: BatchMasks | None,
        token_kl: Floats | None,
    ) -> Batch:
        """Return the batch with advantages by the critic, which learns from now on what it should have predicted."""
        plan = self._plan(batch, step_version, masks)
        found = critic.values_of(self._own(plan.micro_batches), len(batch.token_ids))
        values = np.full(len(found), np.nan)
        for micro_batch in plan.micro_batches:
            values[micro_batch.token_indices] = found[micro_batch.token_indices]
        batch, returns = critic_into_advantages(
            batch,
            values=values,
            kl=token_kl,
            algorithm=self._spec.algorithm,
            objective=self._spec.train.objective,
        )
        critic.begin(values, returns)
        return batch

    def _reference_kl(
        self, batch: Batch, step_version: int, masks: BatchMasks | None
    ) -> tuple[Floats, Floats]:
        """Return the reference's logprobs and KL(sampler ‖ reference), [T] each."""
        reference = batch.behaviour_logprobs.astype(np.float64)  # no KL for untrained tokens
        for micro_batch in self._plan(batch, step_version, masks, computes_all=True).micro_batches:
            logprobs = self._reference_logprobs(micro_batch, batch.header.temperature)
            reference[micro_batch.token_indices] = logprobs.cpu().double().numpy()
        difference = reference - batch.behaviour_logprobs.astype(np.float64)
        return reference, kl_estimates(difference, self._spec.algorithm.kl_estimator)

    @torch.no_grad()
    def _reference_logprobs(self, micro_batch: MicroBatch, temperature: float) -> Tensor:
        """Return the initial policy's logprobs, [N]."""
        if self._adapter is None:
            assert self._reference is not None
            logprobs, _ = self._forward(self._reference.module, micro_batch, temperature)
        else:
            with self._adapter.disabled():
                logprobs, _ = self._forward(self._engine.module, micro_batch, temperature)
        return logprobs

    def _own(self, micro_batches: Sequence[MicroBatch]) -> list[LocalMicroBatch]:
        """Return this rank's micro-batches. All ranks get equally many, since they gather partitioned weights
        together."""
        return [LocalMicroBatch(*own) for own in self._forward.local(micro_batches)]

    def _logprobs(self, micro_batch: MicroBatch, temperature: float) -> Tensor:
        logprobs, _ = self._forward(self._engine, micro_batch, temperature)
        return logprobs

    def _loss(
        self,
        local: LocalMicroBatch,
        *,
        temperature: float,
        version: int | None,
        records: Sequence[Callable[..., None]],
    ) -> Tensor:
        """Return the loss of a micro-batch, and pass its statistics on if it counts.

        `version` is that of the weights, if they are exactly those of a version. Tokens for which an earlier pass has
        found the mismatch with the sampler are not asked again.
        """
        tensor, micro_batch, algorithm = self._forward.tensor, local.micro_batch, self._spec.algorithm
        if algorithm.needs_reference and not algorithm.is_kl_in_reward and local.reference_logprobs is None:
            local.reference_logprobs = self._reference_logprobs(micro_batch, temperature)
        logprobs, entropies = self._forward(self._engine, micro_batch, temperature)
        terms = TokenTerms(
            behaviour_logprobs=tensor(micro_batch.behaviour_logprobs),
            advantages_positive=tensor(micro_batch.advantages_positive),
            advantages_negative=tensor(micro_batch.advantages_negative),
            loss_weights=tensor(micro_batch.loss_weights),
            sequences=tensor(micro_batch.sequences),
            num_sequences=micro_batch.num_sequences,
            is_current=_is_of(
                tensor(micro_batch.versions), version if local.start_logprobs is None else None
            ),
            reference_logprobs=local.reference_logprobs,
            start_logprobs=local.start_logprobs,
        )
        output = policy_loss(logprobs, terms, algorithm, entropies=entropies)
        if self._is_decoupled and local.start_logprobs is None:
            local.start_logprobs = logprobs.detach()  # for the next epoch; this is the batch's first step
        for record in records if local.counts else ():
            record(logprobs=logprobs, entropies=entropies, terms=terms, output=output)
        return output.loss

    @property
    def _is_decoupled(self) -> bool:
        """Whether ratios are taken against the weights at the start of the batch."""
        return self._spec.algorithm.off_policy.proximal is ProximalPolicy.CURRENT

    @property
    def _has_dropout(self) -> bool:
        lora = self._spec.train.lora
        return lora is not None and lora.dropout > 0


def _mean(values: Floats) -> float:
    return float(values.mean()) if len(values) else 0.0


def _is_of(versions: Tensor, version: int | None) -> Tensor:
    return versions == version if version is not None else torch.zeros_like(versions, dtype=torch.bool)


def _optimizer_of(policy: Policy, spec: JobSpec) -> dict[str, Any]:
    """Return the arguments by which DeepSpeed learns of the optimizer."""
    make = partial(
        torch.optim.AdamW,
        lr=spec.train.learning_rate,
        betas=spec.train.adam_betas,
        weight_decay=spec.train.weight_decay,
        fused=True if spec.train.offload.optimizer else None,  # several times faster on a processor
    )
    trained = (parameter for parameter in policy.parameters() if parameter.requires_grad)
    if spec.train.parallel.expert == 1:
        return {"optimizer": make(trained)}
    # DeepSpeed replaces parameters first; the generator yields those that are there afterwards.
    return {"optimizer": grouped_by_experts(make), "model_parameters": trained}
