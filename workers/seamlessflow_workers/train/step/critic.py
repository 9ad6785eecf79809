"""PPO's critic: a second DeepSpeed engine on the same ranks, beside the policy's.

It begins as a copy of the policy whose output head is replaced by a single number per token: the reward that is still
to be expected when the token is sampled. The new head begins with zeros, so the first advantages are the rewards
themselves. Micro-batches, positions and ranks are those of the policy. Its state is saved, loaded and moved off the
accelerator together with the policy's.
"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from seamlessflow.core.algorithms.advantage import Floats
from seamlessflow.core.algorithms.gae import explained_variance
from seamlessflow.core.job_spec import Dtype, JobSpec
from seamlessflow_workers.train.state.background import StateWriter
from seamlessflow_workers.train.state.saving import state_read, state_write, state_written
from seamlessflow_workers.train.step.expert_ranks import expert_shards
from seamlessflow_workers.train.step.metrics import Stopwatch
from seamlessflow_workers.train.step.micro_batches import MicroBatch
from seamlessflow_workers.train.step.offload import StatesMover
from seamlessflow_workers.train.step.optimizer_step import LocalMicroBatch, make_optimizer_step
from seamlessflow_workers.train.step.policy import Policy, policy_load
from seamlessflow_workers.train.step.process_group import deepspeed
from seamlessflow_workers.train.step.value_loss import ValueTerms, value_loss
from seamlessflow_workers.train.trees.blocks import TreeBlocks


class ValueModel(nn.Module):
    """A language model that returns one number for each chosen position instead of logits."""

    def __init__(self, model: Any, *, has_gradient_checkpoints: bool) -> None:
        super().__init__()
        weight = model.get_output_embeddings().weight
        width = getattr(weight, "ds_shape", weight.shape)[-1]
        head = nn.Linear(width, 1, dtype=weight.dtype, device=weight.device)
        nn.init.zeros_(head.weight)
        nn.init.zeros_(head.bias)
        model.set_output_embeddings(head)
        self.body = Policy(model, has_gradient_checkpoints=has_gradient_checkpoints)

    def forward(self, token_ids: Tensor, rows: Tensor, columns: Tensor, tree: TreeBlocks | None) -> Tensor:
        """Return the values of the states in which N tokens were sampled, [N], in float32 or wider."""
        values = self.body.logits(token_ids, rows, columns, tree)[:, 0]
        return values.to(torch.promote_types(values.dtype, torch.float32))


class Critic:
    """Owns the value model and its optimizer. All ranks call every method together. Not thread-safe."""

    def __init__(
        self,
        model_path: Path,
        spec: JobSpec,
        *,
        config: dict[str, Any],
        device: torch.device,
    ) -> None:
        """`config` is DeepSpeed's. Raises ModelLoadError."""
        self._spec, self._device = spec, device
        policy = policy_load(
            model_path, spec.model.dtype, is_tree=spec.train.tree, freeze_router=spec.train.freeze_router
        )
        model = ValueModel(policy.model, has_gradient_checkpoints=spec.train.gradient_checkpointing)
        optimizer = torch.optim.AdamW(
            [parameter for parameter in model.parameters() if parameter.requires_grad],
            lr=spec.algorithm.critic.learning_rate,
            betas=spec.train.adam_betas,
            weight_decay=spec.train.weight_decay,
        )
        self._engine, self._optimizer, _, _ = deepspeed.initialize(
            model=model, optimizer=optimizer, config=config
        )
        self._expert_shards = expert_shards(self._engine.module)
        self._writer = StateWriter(num_sharing=spec.on_devices(1).train.known_num_ranks)
        self._mover = StatesMover(self._engine, None, device)
        self._is_plain = spec.train.zero_stage == 0 and spec.model.dtype is Dtype.FLOAT32
        self.begin(np.zeros(0), np.zeros(0))

    @torch.no_grad()
    def values_of(self, local_batches: Sequence[LocalMicroBatch], num_tokens: int) -> Floats:
        """Return the values of the tokens in the micro-batches of all ranks, [T]; 0 for the others."""
        values = torch.zeros(num_tokens, device=self._device)
        for local in local_batches:
            found = self._values_in(local.micro_batch)
            if local.counts:
                values[self._tensor(local.micro_batch.token_indices)] = found.float()
        if torch.distributed.get_world_size() > 1:
            torch.distributed.all_reduce(values)
        return values.cpu().double().numpy()

    def begin(self, values: Floats, returns: Floats) -> None:
        """Begin a batch with its values under the weights of this moment and what they should have been, [T] each.

        The values are NaN where a token is not trained.
        """
        self._values, self._returns = values, returns
        self._grad_norms: list[float] = []
        # Of this rank: the losses, the tokens that the clip limited, all tokens.
        self._sums = torch.zeros(3, dtype=torch.float64, device=self._device)

    def step(self, local_batches: Sequence[LocalMicroBatch], watch: Stopwatch) -> None:
        """Make one optimizer step over a mini-batch."""
        norm = make_optimizer_step(self._engine, local_batches, self._loss, watch, is_plain=self._is_plain)
        self._grad_norms.append(norm)

    def metrics(self) -> dict[str, float]:
        """Return the metrics of the batch; none if it had no step."""
        if torch.distributed.get_world_size() > 1:
            torch.distributed.all_reduce(self._sums)
        loss, num_clipped, num_tokens = self._sums.tolist()
        if not num_tokens:
            return {}
        known = ~np.isnan(self._values)
        values, returns = self._values[known], self._returns[known]
        finite = [norm for norm in self._grad_norms if math.isfinite(norm)]
        return {
            "train/critic_loss": loss / len(self._grad_norms),
            "train/critic_grad_norm": float(np.mean(finite or self._grad_norms)),
            "train/critic_update_skipped": 1.0 - len(finite) / len(self._grad_norms),
            "train/value_clip_fraction": num_clipped / num_tokens,
            "train/value_mean": float(values.mean()),
            "train/return_mean": float(returns.mean()),
            "train/explained_variance": explained_variance(values, returns),
        }

    def state_save(self, folder: Path, tag: str) -> None:
        """Begin to write this rank's file, as `TrainEngine.state_save` does."""
        state_write(self._engine, self._expert_shards, folder / _tag(tag), self._writer)

    def state_saved(self, *, waits: bool) -> bool:
        return state_written(self._writer, self._device, waits=waits)

    def state_load(self, folder: Path, tag: str) -> None:
        """Raises CheckpointReadError."""
        state_read(self._engine, self._expert_shards, folder / _tag(tag))

    def offload(self) -> int:
        return self._mover.take_away()

    def reload(self) -> None:
        self._mover.bring_back()

    def _loss(self, local: LocalMicroBatch) -> Tensor:
        micro_batch = local.micro_batch
        values = self._values_in(micro_batch)
        terms = ValueTerms(
            old_values=self._tensor(self._values[micro_batch.token_indices].astype(np.float32)),
            returns=self._tensor(self._returns[micro_batch.token_indices].astype(np.float32)),
            weights=self._tensor(micro_batch.loss_weights),
        )
        loss, is_clipped = value_loss(values, terms, self._spec.algorithm.critic.value_clip)
        if local.counts:
            own = [float(loss.detach()), float(is_clipped.sum()), float(len(values))]
            self._sums += torch.tensor(own, dtype=torch.float64, device=self._device)
        return loss

    def _values_in(self, micro_batch: MicroBatch) -> Tensor:
        arrays = (micro_batch.token_ids, micro_batch.rows, micro_batch.columns)
        tree = None if micro_batch.tree is None else TreeBlocks(micro_batch.tree)
        values = self._engine(*(self._tensor(array) for array in arrays), tree)
        assert isinstance(values, Tensor)
        return values

    def _tensor(self, array: NDArray[Any]) -> Tensor:
        return torch.from_numpy(array).to(self._device)


def _tag(tag: str) -> str:
    return f"{tag}-critic"
