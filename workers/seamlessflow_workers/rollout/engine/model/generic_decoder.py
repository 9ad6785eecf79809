"""Any other transformers decoder, through its own forward pass with our cache behind transformers' `Cache` interface.

It is slower than the hand-written decoder and verified when it loads: a short probe must give the logits of the model's
plain forward pass. Otherwise (a sliding window, a state-space layer, an odd cache) the model is refused. Its parameters
have the names of the model folder (`weights.naming`); those of single experts are views of the stacked ones.
"""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel
from transformers.cache_utils import Cache, DynamicCache

from seamlessflow_workers.rollout.engine.model.kv_cache import CacheShape, KVCache
from seamlessflow_workers.rollout.weights import HEAD
from seamlessflow_workers.weights.naming import parameter_views

PROBE_LENGTH = 12
PROBE_TOLERANCE = {torch.float32: 1e-3, torch.bfloat16: 0.5}


class UnsupportedModelError(ValueError):
    """The model's layers do not keep exactly one key and one value per token."""


class _RowCache(Cache):
    """The cache as a transformers layer sees it: the layer writes keys and values and gets all it may attend to."""

    def __init__(self, cache: KVCache, *, num_positions: int) -> None:
        super().__init__(layers=[])
        self._cache = cache
        self._num_positions = num_positions

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *_args: Any, **_kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        return self._cache.update(layer_idx, key_states.transpose(1, 2), value_states.transpose(1, 2))

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return self._num_positions

    def get_mask_sizes(self, query_length: int, layer_idx: int) -> tuple[int, int]:
        return self._num_positions, 0

    def __len__(self) -> int:
        return self._cache.shape.num_layers


class GenericDecoder:
    def __init__(
        self, model: PreTrainedModel, *, max_model_len: int, folder_names: Collection[str] = ()
    ) -> None:
        """`folder_names`: the tensors of the model folder, after which the parameters are named."""
        self._model = model.eval()
        embedding = model.get_input_embeddings().weight
        assert isinstance(embedding, Tensor)
        self.dtype, self.device = embedding.dtype, embedding.device
        self.vocab_size = int(model.config.get_text_config().vocab_size)
        self._parameters = _named_views(model, folder_names)
        self.tied_embedding = self._find_tied_embedding()
        if self.tied_embedding is not None:
            del self._parameters[HEAD]
        _refuse_windows(model, max_model_len=max_model_len)
        shape = _cache_shape(model)
        self.num_layers, self.num_kv_heads = shape.num_layers, shape.num_kv_heads
        self.key_dim, self.value_dim = shape.key_dim, shape.value_dim
        self._prove(max_model_len)

    def _find_tied_embedding(self) -> str | None:
        head = self._parameters.get(HEAD)
        if head is None:
            return None
        same = (
            n for n, tensor in self._parameters.items() if n != HEAD and tensor.data_ptr() == head.data_ptr()
        )
        return next(same, None)

    @property
    def parameters(self) -> Mapping[str, Tensor]:
        return self._parameters

    def refresh(self) -> None:
        """Nothing is derived from the parameters."""

    def forward(
        self, *, tokens: Tensor, positions: Tensor, mask: Tensor, last: Tensor, cache: KVCache
    ) -> Tensor:
        logits = self._model(
            input_ids=tokens,
            position_ids=positions,
            attention_mask=mask,
            past_key_values=_RowCache(cache, num_positions=mask.shape[-1]),
            use_cache=True,
        ).logits
        ends: Tensor = logits[torch.arange(len(last), device=self.device), last]
        return ends

    @torch.inference_mode()
    def _prove(self, max_model_len: int) -> None:
        length = min(PROBE_LENGTH, max_model_len)
        tokens = torch.arange(length, device=self.device)[None] % self.vocab_size
        expected = self._model(input_ids=tokens, use_cache=False).logits[0, -1]
        shape = CacheShape(self.num_layers, 1, self.num_kv_heads, length, self.key_dim, self.value_dim)
        cache = KVCache(shape, dtype=self.dtype, device=self.device)
        logits = torch.empty(0)
        for start, end in ((0, length - 1), (length - 1, length)):
            positions = torch.arange(start, end, device=self.device)[None]
            rows = torch.zeros(1, dtype=torch.long, device=self.device)
            cache.aim(rows=rows, write_positions=positions, num_positions=end, is_dense=True)
            mask = torch.zeros(1, 1, end - start, end, dtype=self.dtype, device=self.device)
            later = torch.arange(end, device=self.device) > positions[:, None, :, None]
            logits = self.forward(
                tokens=tokens[:, start:end],
                positions=positions,
                mask=mask.masked_fill(later, -torch.inf),
                last=torch.tensor([end - start - 1], device=self.device),
                cache=cache,
            )
        difference = float((logits[0] - expected).abs().max())
        if not difference <= PROBE_TOLERANCE.get(self.dtype, 1e-3):
            message = f"its cached forward pass differs from its plain one by {difference:.3g}"
            raise UnsupportedModelError(f"{type(self._model).__name__} cannot be served: {message}")


def _refuse_windows(model: PreTrainedModel, *, max_model_len: int) -> None:
    """Refuse attention windows, which the probe cannot detect because it is shorter than a window."""
    config = model.config.get_text_config()
    name = type(model).__name__
    if set(getattr(config, "layer_types", None) or ["full_attention"]) != {"full_attention"}:
        raise UnsupportedModelError(f"{name} cannot be served: it has layers other than full attention")
    window = getattr(config, "sliding_window", None)
    if window and getattr(config, "use_sliding_window", True) and window < max_model_len:
        message = f"its attention window of {window} is shorter than --max-model-len {max_model_len}"
        raise UnsupportedModelError(f"{name} cannot be served: {message}")


def _named_views(model: PreTrainedModel, folder_names: Collection[str]) -> dict[str, Tensor]:
    """Return parameters and persistent buffers by their names in the model folder."""
    own: dict[str, Tensor] = dict(model.state_dict())
    shapes = {name: tuple(tensor.shape) for name, tensor in own.items()}
    return {
        name: view.of(own[view.parameter]) for name, view in parameter_views(shapes, folder_names).items()
    }


@torch.inference_mode()
def _cache_shape(model: PreTrainedModel) -> CacheShape:
    """Return the model's actual cache of one row of two tokens."""
    name = type(model).__name__
    cache = DynamicCache()
    tokens = torch.zeros(1, 2, dtype=torch.long, device=model.device)
    model(input_ids=tokens, past_key_values=cache, use_cache=True)
    shapes = set()
    for layer in cache.layers:
        keys, values = getattr(layer, "keys", None), getattr(layer, "values", None)
        if keys is None or values is None or keys.shape[:-1] != values.shape[:-1]:
            raise UnsupportedModelError(
                f"{name} cannot be served: a layer does not cache keys and values by token"
            )
        shapes.add((int(keys.shape[1]), int(keys.shape[3]), int(values.shape[3])))
    if len(shapes) != 1:
        raise UnsupportedModelError(f"{name} cannot be served: its layers' caches differ in shape")
    num_kv_heads, key_dim, value_dim = shapes.pop()
    return CacheShape(len(cache.layers), 1, num_kv_heads, tokens.shape[1], key_dim, value_dim)


def load_generic_model(
    path: Path, *, has_own_weights: bool, dtype: torch.dtype, device: torch.device
) -> PreTrainedModel:
    """Load from local files only, without running the model's own code.

    Without `has_own_weights` the weights are random, to be overwritten by the caller.
    """
    if has_own_weights:
        model = AutoModelForCausalLM.from_pretrained(
            path, dtype=dtype, local_files_only=True, trust_remote_code=False, attn_implementation="sdpa"
        )
    else:
        config = AutoConfig.from_pretrained(path, local_files_only=True, trust_remote_code=False)
        model = AutoModelForCausalLM.from_config(config, dtype=dtype, attn_implementation="sdpa")
        _widen(model)
    assert isinstance(model, PreTrainedModel)
    torch.nn.Module.to(model, device)
    return model


def _widen(model: PreTrainedModel) -> None:
    """Make float32 the tensors that the model's family never rounds (a router's correction), as loading its weights
    would."""
    kept = getattr(model, "_keep_in_fp32_modules_strict", None) or ()
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        if any(word in kept for word in name.split(".")):
            tensor.data = tensor.data.float()
