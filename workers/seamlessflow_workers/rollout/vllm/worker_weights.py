"""The weights that one vLLM worker loads next: takes safetensors files and returns tensors by name.

Of most tensors, one worker of several needs only a slice, and reads only that (`worker_slices`). There are two steps,
so that a flaw is found before anything changes: staging reads and checks, in a thread of its own while the worker
computes, and `staged` returns the result for vLLM's own reload (`weight_transfer`). A tied model's head is always
included with the embedding, because vLLM keeps a packed copy of it on CPUs. Of an adapter only the changed modules are
included, but all weights of those: vLLM fuses queries, keys and values.
"""

from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from torch import Tensor

from seamlessflow.core.model_tensors import is_beside_model
from seamlessflow_workers.rollout.weights import EMBEDDING, HEAD, StagedUpdate, TensorSlices, WeightUpdates
from seamlessflow_workers.weights.model_folder import folder_shapes
from seamlessflow_workers.weights.offers import WeightsError

Shape = tuple[int, ...]


class WorkerWeights:
    def __init__(self, model_config: Any, slices_of: Callable[[Mapping[str, Shape]], TensorSlices]) -> None:
        """`model_config` is vLLM's. `slices_of`: which slices of tensors with these shapes the worker loads."""
        self._model_config = model_config
        self._slices_of = slices_of
        self._is_tied = bool(model_config.hf_text_config.tie_word_embeddings)
        self._updates: WeightUpdates | None = None
        self._staged: StagedUpdate | None = None
        self._threads = ThreadPoolExecutor(1, thread_name_prefix="weights")
        self._coming: Future[str] | None = None

    @property
    def num_bytes(self) -> int:
        """The bytes that were read of the staged weights."""
        return 0 if self._staged is None else self._staged.num_bytes

    def stage(self, path: Path) -> str:
        """Read and check a file, a folder of shards or an adapter; return why it does not fit, or an empty string."""
        self._staged = None
        try:
            self._staged = self._weight_updates().stage(path)
        except WeightsError as error:
            return str(error)
        return ""

    def stage_begin(self, path: Path) -> None:
        """Start to stage a version from its files, while the worker goes on computing."""
        self._coming = self._threads.submit(self.stage, path)

    def stage_end(self) -> str | None:
        """Return the answer of `stage`, once; None before, and afterwards."""
        if self._coming is None or not self._coming.done():
            return None
        coming, self._coming = self._coming, None
        return coming.result()

    def staged(self) -> dict[str, Tensor]:
        """Return the staged tensors by their names in a checkpoint. Raises WeightsError if nothing is staged."""
        if self._staged is None:
            raise WeightsError("no weights are staged")
        values = dict(self._staged.values)
        if self._is_tied and EMBEDDING in values:
            values[HEAD] = values[EMBEDDING]
        return values

    def loaded(self) -> None:
        """Note that the staged weights are loaded."""
        update, self._staged = self._staged, None
        assert update is not None
        self._weight_updates().applied(update)

    def _weight_updates(self) -> WeightUpdates:
        if self._updates is None:
            folder = Path(self._model_config.model)
            num_layers = self._model_config.hf_text_config.num_hidden_layers
            shapes = {
                name: shape
                for name, shape in folder_shapes(folder).items()
                if not is_beside_model(name, num_layers=num_layers)
            }
            if self._is_tied:
                shapes.pop(HEAD, None)
            self._updates = WeightUpdates(
                folder,
                shapes,
                tied_embedding=EMBEDDING if self._is_tied else None,
                dtype=self._model_config.dtype,
                takes_whole_modules=True,
                slices=self._slices_of(shapes),
            )
        return self._updates
