"""Our backend of vLLM's weight transfer: what a worker has staged goes into its model by vLLM's own four steps.

vLLM makes one `StagedWeightTransfer` a worker, for the name in its configuration, and calls it between pause and
resume: start, update, finish (layer-wise reload; CPU linears are repacked after loading, so plain copies cannot work).
By then the weights have come and been proven, while the old ones served: an update only puts in place, whichever way
they came. `WeightFiles` are the calls for that, which vLLM mixes into its worker class (`--worker-extension-cls`).
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from vllm.config import VllmConfig
from vllm.config.weight_transfer import WeightTransferConfig
from vllm.distributed.weight_transfer import WeightTransferEngineFactory
from vllm.distributed.weight_transfer.base import (
    WeightTransferEngine,
    WeightTransferInitInfo,
    WeightTransferUpdateInfo,
)
from vllm.model_executor.model_loader.reload import finalize_layerwise_reload, initialize_layerwise_reload

from seamlessflow_workers.rollout.vllm.options import WEIGHT_TRANSFER
from seamlessflow_workers.rollout.vllm.worker_weights import WorkerWeights


@dataclass
class NothingToAgree(WeightTransferInitInfo):
    """Where weights can be had is in the trainer's offer, per version."""


@dataclass
class WhatIsStaged(WeightTransferUpdateInfo):
    """An update has no payload: the worker has it."""


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
        self.weights = WorkerWeights(self.model_config, device)

    def init_transfer_engine(self, init_info: NothingToAgree) -> None:
        pass

    def start_weight_update(self) -> None:
        self.weights.staged()  # raises before anything is changed
        initialize_layerwise_reload(self.model)

    def update_weights(self, update_info: dict[str, Any]) -> None:
        """As vLLM's own, which cannot be called without an accelerator."""
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
    """Part of a vLLM worker, called by the engine's process with strings; what they answer is of plain types too."""

    weight_transfer_engine: StagedWeightTransfer

    def stage_weight_files(self, path: str) -> str:
        return self.weight_transfer_engine.weights.stage(Path(path))

    def receive_weights_begin(self, path: str) -> None:
        self.weight_transfer_engine.weights.receive_begin(Path(path))

    def receive_weights_end(self) -> list[Any] | None:
        """[transport, bytes, seconds, reason of a fallback, what does not fit]; None while they come."""
        received = self.weight_transfer_engine.weights.receive_end()
        if received is None:
            return None
        arrival, problem = received
        return [str(arrival.transport), arrival.num_bytes, arrival.seconds, arrival.fallback, problem]
