"""Our backend of vLLM's weight transfer: it loads what a worker has staged through vLLM's own steps.

vLLM makes one `StagedWeightTransfer` per worker, by the name in its configuration, and calls it between pause and
resume: start, update, finish (a layer-wise reload; CPU linears are repacked after loading, so plain copies cannot
work). By then the weights have been received and checked while the old ones served, so an update only loads them,
whichever way they came. `WeightFiles` has the calls that stage; vLLM mixes it into its worker class
(`--worker-extension-cls`).
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from vllm.config import VllmConfig
from vllm.config.weight_transfer import WeightTransferConfig
from vllm.device_allocator.cumem import CuMemAllocator
from vllm.distributed.weight_transfer import WeightTransferEngineFactory
from vllm.distributed.weight_transfer.base import (
    WeightTransferEngine,
    WeightTransferInitInfo,
    WeightTransferUpdateInfo,
)
from vllm.model_executor.model_loader.reload import finalize_layerwise_reload, initialize_layerwise_reload

from seamlessflow_workers.rollout.vllm.options import WEIGHT_TRANSFER
from seamlessflow_workers.rollout.vllm.worker_memory import bytes_kept
from seamlessflow_workers.rollout.vllm.worker_slices import worker_slices
from seamlessflow_workers.rollout.vllm.worker_weights import WorkerWeights


@dataclass
class NothingToAgree(WeightTransferInitInfo):
    """Nothing: the trainer's offer says, per version, where the weights are."""


@dataclass
class WhatIsStaged(WeightTransferUpdateInfo):
    """Nothing: the worker already has the weights."""


class StagedWeightTransfer(WeightTransferEngine[NothingToAgree, WhatIsStaged]):
    init_info_cls = NothingToAgree
    update_info_cls = WhatIsStaged
    supports_draft_weight_update = False

    def __init__(
        self,
        config: WeightTransferConfig,
        vllm_config: VllmConfig,
        device: torch.device,
        model: torch.nn.Module,
    ) -> None:
        super().__init__(config, vllm_config, device, model)
        self.weights = WorkerWeights(self.model_config, lambda shapes: worker_slices(model, shapes))

    def init_transfer_engine(self, init_info: NothingToAgree) -> None:
        pass

    def start_weight_update(self) -> None:
        self.weights.staged()  # raises before anything is changed
        initialize_layerwise_reload(self.model)

    def update_weights(self, update_info: dict[str, Any]) -> None:
        """Do what vLLM's own method does, which cannot be called without an accelerator."""
        self.receive_weights(self.parse_update_info(update_info))
        if torch.accelerator.is_available():
            torch.accelerator.synchronize()

    def receive_weights(self, update_info: WhatIsStaged) -> None:
        self.model.load_weights(iter(self.weights.staged().items()))

    def finish_weight_update(self) -> None:
        finalize_layerwise_reload(self.model, self.model_config)
        self.weights.loaded()

    def shutdown(self) -> None:
        pass


WeightTransferEngineFactory.register_engine(WEIGHT_TRANSFER, StagedWeightTransfer)


class WeightFiles:
    """Extends a vLLM worker; the engine's process calls it with strings and gets plain types back."""

    weight_transfer_engine: StagedWeightTransfer

    def device_bytes_kept(self) -> int:
        """Return how many bytes of its GPU a worker keeps that sleeps."""
        allocations = CuMemAllocator.get_instance().pointer_to_data.values()
        return bytes_kept(allocations, reserved_bytes=torch.cuda.memory_reserved())

    def stage_weights_begin(self, path: str) -> None:
        self.weight_transfer_engine.weights.stage_begin(Path(path))

    def stage_weights_end(self) -> tuple[str, int] | None:
        """Return why the weights do not fit ("" if they do) and the bytes read; None while they are read."""
        weights = self.weight_transfer_engine.weights
        problem = weights.stage_end()
        return None if problem is None else (problem, weights.num_bytes)
