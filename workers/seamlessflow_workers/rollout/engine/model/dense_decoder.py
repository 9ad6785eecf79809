"""Hand-written forward pass of Llama, Qwen2 and Qwen3 dense decoders, straight from their checkpoint tensors.

It does not import transformers, which makes the start three times faster, and needs few operations: query, key and
value are computed in one product, as are gate and up; the heads of one key are folded into the time axis, so
grouped-query attention copies nothing. Every checkpoint tensor is a view of a tensor used in the computation, so
weights are swapped by copying into `parameters`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - its usual name
from torch import Tensor

from seamlessflow_workers.rollout.engine.model.kv_cache import KVCache
from seamlessflow_workers.rollout.weights import EMBEDDING, HEAD

SUPPORTED_ARCHITECTURES = ("LlamaForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM")


@dataclass(frozen=True, slots=True)
class DenseConfig:
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    rms_norm_eps: float
    rope_theta: float
    is_tied: bool
    has_qk_norm: bool
    has_qkv_bias: bool
    has_output_bias: bool


def dense_config(config: Mapping[str, Any]) -> DenseConfig | None:
    """Return what `config.json` describes, or None if this decoder would not compute it exactly."""
    architecture = (config.get("architectures") or [None])[0]
    if architecture not in SUPPORTED_ARCHITECTURES or not _is_plain(config):
        return None
    rope: Mapping[str, Any] = config.get("rope_parameters") or {}
    has_bias = bool(config.get("attention_bias", False))
    is_qwen2 = architecture == "Qwen2ForCausalLM"
    num_heads = int(config["num_attention_heads"])
    return DenseConfig(
        vocab_size=int(config["vocab_size"]),
        hidden_size=int(config["hidden_size"]),
        intermediate_size=int(config["intermediate_size"]),
        num_layers=int(config["num_hidden_layers"]),
        num_heads=num_heads,
        num_kv_heads=int(config.get("num_key_value_heads") or num_heads),
        head_dim=int(config.get("head_dim") or int(config["hidden_size"]) // num_heads),
        rms_norm_eps=float(config.get("rms_norm_eps", 1e-6)),
        rope_theta=float(rope.get("rope_theta") or config.get("rope_theta") or 10000.0),
        is_tied=bool(config.get("tie_word_embeddings", False)),
        has_qk_norm=architecture == "Qwen3ForCausalLM",
        has_qkv_bias=is_qwen2 or has_bias,
        has_output_bias=has_bias and not is_qwen2,
    )


def _is_plain(config: Mapping[str, Any]) -> bool:
    """Whether it has the default rotary embedding, full attention, SiLU, no feed-forward bias and no quantisation."""
    rope: Mapping[str, Any] = config.get("rope_parameters") or config.get("rope_scaling") or {}
    rope_type = rope.get("rope_type", rope.get("type", "default"))
    layer_types = set(config.get("layer_types") or ["full_attention"])
    return (
        rope_type == "default"
        and not rope.get("partial_rotary_factor")
        and layer_types == {"full_attention"}
        and not config.get("use_sliding_window", False)
        and config.get("hidden_act", "silu") == "silu"
        and not config.get("mlp_bias", False)
        and "quantization_config" not in config
    )


class _Layer:
    """The tensors of one layer; `named` has views of them under the checkpoint's names."""

    def __init__(self, config: DenseConfig, *, prefix: str, options: dict[str, Any]) -> None:
        c = config
        q, kv = c.num_heads * c.head_dim, c.num_kv_heads * c.head_dim
        self.input_norm = torch.empty(c.hidden_size, **options)
        self.post_norm = torch.empty(c.hidden_size, **options)
        self.qkv = torch.empty(q + 2 * kv, c.hidden_size, **options)
        self.qkv_bias = torch.empty(q + 2 * kv, **options) if c.has_qkv_bias else None
        self.output = torch.empty(c.hidden_size, q, **options)
        self.output_bias = torch.empty(c.hidden_size, **options) if c.has_output_bias else None
        self.gate_up = torch.empty(2 * c.intermediate_size, c.hidden_size, **options)
        self.down = torch.empty(c.hidden_size, c.intermediate_size, **options)
        self.qk_norm = torch.empty(2, c.head_dim, **options) if c.has_qk_norm else None
        self.qk_scale: Tensor | None = None  # `qk_norm` spread over the heads
        sizes = (q, kv, kv)
        self.named = {
            f"{prefix}.input_layernorm.weight": self.input_norm,
            f"{prefix}.post_attention_layernorm.weight": self.post_norm,
            f"{prefix}.self_attn.o_proj.weight": self.output,
            f"{prefix}.mlp.down_proj.weight": self.down,
        }
        self._name(f"{prefix}.self_attn.{{}}_proj.weight", "qkv", self.qkv.split(sizes))
        self._name(f"{prefix}.mlp.{{}}_proj.weight", ("gate", "up"), self.gate_up.chunk(2))
        if self.qkv_bias is not None:
            self._name(f"{prefix}.self_attn.{{}}_proj.bias", "qkv", self.qkv_bias.split(sizes))
        if self.output_bias is not None:
            self.named[f"{prefix}.self_attn.o_proj.bias"] = self.output_bias
        if self.qk_norm is not None:
            self._name(f"{prefix}.self_attn.{{}}_norm.weight", "qk", self.qk_norm.unbind())

    def _name(self, pattern: str, names: str | tuple[str, ...], tensors: tuple[Tensor, ...]) -> None:
        self.named |= {pattern.format(name): tensor for name, tensor in zip(names, tensors, strict=True)}


class DenseDecoder:
    def __init__(
        self, config: DenseConfig, *, max_model_len: int, dtype: torch.dtype, device: torch.device
    ) -> None:
        self.config = config
        self.num_layers, self.num_kv_heads = config.num_layers, config.num_kv_heads
        self.key_dim = self.value_dim = config.head_dim
        self.vocab_size = config.vocab_size
        self.dtype, self.device = dtype, device
        self.tied_embedding = EMBEDDING if config.is_tied else None
        options: dict[str, Any] = {"dtype": dtype, "device": device}
        self._embedding = torch.empty(config.vocab_size, config.hidden_size, **options)
        self._head = self._embedding if config.is_tied else torch.empty_like(self._embedding)
        self._norm = torch.empty(config.hidden_size, **options)
        self._layers = [
            _Layer(config, prefix=f"model.layers.{index}", options=options)
            for index in range(config.num_layers)
        ]
        self._parameters = {EMBEDDING: self._embedding, "model.norm.weight": self._norm}
        if not config.is_tied:
            self._parameters[HEAD] = self._head
        for layer in self._layers:
            self._parameters |= layer.named
        self._cosine, self._sine = _rotary_tables(config, max_model_len=max_model_len, options=options)

    @property
    def parameters(self) -> Mapping[str, Tensor]:
        return self._parameters

    def refresh(self) -> None:
        counts = torch.tensor([self.config.num_heads, self.num_kv_heads], device=self.device)
        for layer in self._layers:
            if layer.qk_norm is not None:
                layer.qk_scale = layer.qk_norm.repeat_interleave(counts, dim=0)

    def forward(
        self, *, tokens: Tensor, positions: Tensor, mask: Tensor, last: Tensor, cache: KVCache
    ) -> Tensor:
        config = self.config
        shape, eps = (config.hidden_size,), config.rms_norm_eps
        hidden = F.embedding(tokens, self._embedding)
        cosine, sine = self._cosine[positions][:, :, None], self._sine[positions][:, :, None]
        mask = mask.repeat(1, 1, config.num_heads // config.num_kv_heads, 1)
        for index, layer in enumerate(self._layers):
            x = F.rms_norm(hidden, shape, layer.input_norm, eps)
            hidden = hidden + self._attend(index, layer, x, cosine=cosine, sine=sine, mask=mask, cache=cache)
            x = F.rms_norm(hidden, shape, layer.post_norm, eps)
            gate, up = F.linear(x, layer.gate_up).chunk(2, dim=-1)
            hidden = hidden + F.linear(F.silu(gate) * up, layer.down)
        ends = (
            hidden[:, 0]
            if hidden.shape[1] == 1
            else hidden[torch.arange(len(last), device=self.device), last]
        )
        return F.linear(F.rms_norm(ends, shape, self._norm, eps), self._head)

    def _attend(
        self,
        index: int,
        layer: _Layer,
        x: Tensor,
        *,
        cosine: Tensor,
        sine: Tensor,
        mask: Tensor,
        cache: KVCache,
    ) -> Tensor:
        config = self.config
        batch, time = x.shape[:2]
        num_heads, num_kv, dim = config.num_heads, config.num_kv_heads, config.head_dim
        heads = F.linear(x, layer.qkv, layer.qkv_bias).view(batch, time, num_heads + 2 * num_kv, dim)
        qk, values = heads.split((num_heads + num_kv, num_kv), dim=2)
        if layer.qk_scale is not None:
            qk = F.rms_norm(qk, (dim,), None, config.rms_norm_eps) * layer.qk_scale
        qk = torch.addcmul(qk * cosine, qk.roll(dim // 2, dims=-1), sine)
        queries, keys = qk.split((num_heads, num_kv), dim=2)
        keys, values = cache.update(index, keys, values)
        # [batch, time, kv head, group, dim] → [batch, kv head, group × time, dim]: one attention row per query head.
        folded = (
            queries.view(batch, time, num_kv, -1, dim).permute(0, 2, 3, 1, 4).reshape(batch, num_kv, -1, dim)
        )
        mixed = F.scaled_dot_product_attention(folded, keys, values, attn_mask=mask)
        mixed = mixed.view(batch, num_kv, -1, time, dim).permute(0, 3, 1, 2, 4).reshape(batch, time, -1)
        return F.linear(mixed, layer.output, layer.output_bias)


def _rotary_tables(
    config: DenseConfig, *, max_model_len: int, options: dict[str, Any]
) -> tuple[Tensor, Tensor]:
    """Return cos and sin [position, head_dim], computed in float32, then cast.

    The first half of sin is negative, so that a rotation is `x · cos + roll(x) · sin`.
    """
    exponents = torch.arange(0, config.head_dim, 2, dtype=torch.float32) / config.head_dim
    angles = torch.outer(torch.arange(max_model_len, dtype=torch.float32), 1.0 / config.rope_theta**exponents)
    cosine = torch.cat([angles.cos(), angles.cos()], dim=-1)
    sine = torch.cat([-angles.sin(), angles.sin()], dim=-1)
    return cosine.to(**options), sine.to(**options)
