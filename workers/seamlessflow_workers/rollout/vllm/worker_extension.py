"""New weights inside vLLM's worker processes: safetensors files enter, vLLM's own reload puts them in place.

vLLM mixes `WeightFiles` into its worker class (`--worker-extension-cls`); the engine process calls it by name, with
strings only. Two steps, so that a flaw is found while nothing has changed: `stage_weight_files` reads and proves,
`apply_staged_weights` reloads layer by layer (CPU linears are repacked after loading, so plain copies cannot work).
The head of a tied model is always handed over with the embedding: vLLM keeps a packed copy of it on CPUs. Of an adapter
only the layers that it changes are reloaded, whole: vLLM has queries, keys and values of a layer in one.
"""

from pathlib import Path
from typing import Any

from safetensors import safe_open

from seamlessflow_workers.rollout.engine.runner import WeightsError
from seamlessflow_workers.rollout.engine.updates import StagedUpdate, WeightUpdates
from seamlessflow_workers.rollout.engine.weights import EMBEDDING, HEAD


class WeightFiles:
    """Part of a vLLM worker: `model_config` and `reload_weights` are the worker's."""

    model_config: Any
    _updates: WeightUpdates | None = None
    _staged_update: StagedUpdate | None = None

    def stage_weight_files(self, path: str) -> str:
        """Read a safetensors file, a folder of shards or an adapter; a sentence when it does not fit, else nothing."""
        try:
            self._staged_update = self._weight_updates().stage(Path(path))
        except WeightsError as error:
            return str(error)
        return ""

    def apply_staged_weights(self) -> None:
        update, self._staged_update = self._staged_update, None
        if update is None:
            raise WeightsError("no weights are staged")
        values = dict(update.values)
        if self._is_tied and EMBEDDING in values:
            values[HEAD] = values[EMBEDDING]
        self.reload_weights(weights_iterator=iter(values.items()))  # type: ignore[attr-defined]
        self._weight_updates().applied(update)

    @property
    def _is_tied(self) -> bool:
        return bool(self.model_config.hf_text_config.tie_word_embeddings)

    def _weight_updates(self) -> WeightUpdates:
        if self._updates is None:
            folder = Path(self.model_config.model)
            shapes = checkpoint_shapes(folder)
            if self._is_tied:
                shapes.pop(HEAD, None)
            self._updates = WeightUpdates(
                folder,
                shapes,
                tied_embedding=EMBEDDING if self._is_tied else None,
                dtype=self.model_config.dtype,
                takes_whole_modules=True,
            )
        return self._updates


def checkpoint_shapes(folder: Path) -> dict[str, tuple[int, ...]]:
    """Names and shapes of a model folder's tensors, from the headers of its safetensors files."""
    shapes: dict[str, tuple[int, ...]] = {}
    for file in sorted(folder.glob("*.safetensors")):
        with safe_open(file, framework="pt") as shard:
            for name in shard.keys():  # noqa: SIM118 - safe_open is no mapping
                shapes[name] = tuple(shard.get_slice(name).get_shape())
    return shapes
