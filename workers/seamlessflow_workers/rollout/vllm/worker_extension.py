"""New weights inside vLLM's worker processes: safetensors files enter, vLLM's own reload puts them in place.

vLLM mixes `WeightFiles` into its worker class (`--worker-extension-cls`); the engine process calls it by name, with
strings only. Two steps, so that a flaw is found while nothing has changed: `stage_weight_files` reads and proves,
`apply_staged_weights` reloads layer by layer (CPU linears are repacked after loading, so plain copies cannot work).
The head of a tied model is always handed over with the embedding: vLLM keeps a packed copy of it on CPUs.
"""

from pathlib import Path
from typing import Any

from safetensors import safe_open
from torch import Tensor

from seamlessflow_workers.rollout.engine.runner import WeightsError
from seamlessflow_workers.rollout.engine.weights import EMBEDDING, HEAD, read_checked


class WeightFiles:
    """Part of a vLLM worker: `model_config` and `reload_weights` are the worker's."""

    model_config: Any
    _staged_weights: dict[str, Tensor] | None = None

    def stage_weight_files(self, path: str) -> str:
        """Read a safetensors file or a folder of shards; a sentence when they do not fit, else nothing."""
        is_tied = bool(self.model_config.hf_text_config.tie_word_embeddings)
        shapes = checkpoint_shapes(Path(self.model_config.model))
        if is_tied:
            shapes.pop(HEAD, None)
        try:
            self._staged_weights = read_checked(
                Path(path), shapes, tied_embedding=EMBEDDING if is_tied else None
            )
        except WeightsError as error:
            return str(error)
        if is_tied:
            self._staged_weights[HEAD] = self._staged_weights[EMBEDDING]
        return ""

    def apply_staged_weights(self) -> None:
        staged, self._staged_weights = self._staged_weights, None
        if staged is None:
            raise WeightsError("no weights are staged")
        self.reload_weights(weights_iterator=iter(staged.items()))  # type: ignore[attr-defined]


def checkpoint_shapes(folder: Path) -> dict[str, tuple[int, ...]]:
    """Names and shapes of a model folder's tensors, from the headers of its safetensors files."""
    shapes: dict[str, tuple[int, ...]] = {}
    for file in sorted(folder.glob("*.safetensors")):
        with safe_open(file, framework="pt") as shard:
            for name in shard.keys():  # noqa: SIM118 - safe_open is no mapping
                shapes[name] = tuple(shard.get_slice(name).get_shape())
    return shapes
