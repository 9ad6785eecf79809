"""The LoRA adapter of a policy (arXiv 2106.09685), made by peft.

It takes a loaded model and the job's `train.lora`. It returns the same model with low-rank layers beside its linear
ones (in a mixture of experts: those of attention), and the adapter's tensors under the names that peft uses in its
files. Invariants: only the adapter takes
gradients; B is zero at the start, so version 0 is the model itself; the adapter's configuration has the same bytes in
every process.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from peft import LoraConfig, inject_adapter_in_model
from peft.tuners.lora import LoraLayer
from torch import Tensor, nn
from transformers import PreTrainedModel

from seamlessflow.core.job_spec import LoraSection
from seamlessflow.core.model_tensors import adaptable_layers, is_of_routed_expert
from seamlessflow_workers.train.step_engine import ModelRefused

_NAME = "default"  # peft's name for a model's only adapter
_PREFIX = "base_model.model."  # of names in peft's files, which have the state of its wrapper
_ALL_LINEAR = "all-linear"  # peft's term for every linear layer except the output head


class Adapter:
    def __init__(self, model: PreTrainedModel, config: LoraConfig) -> None:
        self._layers = {name: layer for name, layer in model.named_modules() if isinstance(layer, LoraLayer)}
        self.config = _config_encode(config)

    def tensors(self) -> Mapping[str, Tensor]:
        """Return A [rank, inputs] and B [outputs, rank] of each layer, named as in `adapter_model.safetensors`."""
        return {
            f"{_PREFIX}{name}.{matrix}.weight": getattr(layer, matrix)[_NAME].weight
            for name, layer in self._layers.items()
            for matrix in ("lora_A", "lora_B")
        }

    def dropouts(self) -> list[nn.Dropout]:
        layers = self._layers.values()
        modules = (module for layer in layers for module in layer.lora_dropout.modules())
        return [module for module in modules if isinstance(module, nn.Dropout)]

    @contextmanager
    def disabled(self) -> Iterator[None]:
        """A context in which the model computes as it would without the adapter.

        The adapter's scale is zero there; skipping layers would change the order in which ZeRO-3 prefetches modules.
        """
        self._scale(0.0)
        try:
            yield
        finally:
            self._scale(1.0)

    def _scale(self, factor: float) -> None:
        for layer in self._layers.values():
            layer.set_scale(_NAME, factor)


def adapter_attach(model: PreTrainedModel, section: LoraSection, *, source: str) -> Adapter:
    """Put an adapter into `model` itself; `source` is named in its configuration. Raises ModelRefused."""
    is_mixture = any(is_of_routed_expert(name) for name, _ in model.named_parameters())
    layers = adaptable_layers(_linear_layers(model), is_mixture=is_mixture)
    _check_targets(model, layers, section.target_modules)
    if is_mixture and not section.target_modules:
        # peft's own term would include layers that it takes for experts.
        targets: list[str] | str = sorted({_last(name) for name in layers})
    else:
        targets = section.target_modules or _ALL_LINEAR
    config = LoraConfig(
        r=section.rank,
        lora_alpha=section.alpha,  # type: ignore[arg-type]  # peft divides it by the rank, so any number works
        lora_dropout=section.dropout,
        target_modules=targets,
        task_type="CAUSAL_LM",
        base_model_name_or_path=source.removeprefix("hub://"),
        inference_mode=False,
    )
    inject_adapter_in_model(config, model)
    return Adapter(model, config)


def _linear_layers(model: PreTrainedModel) -> list[str]:
    """Return the names of all linear layers but the output head."""
    head = model.get_output_embeddings()
    return [
        name for name, layer in model.named_modules() if isinstance(layer, nn.Linear) and layer is not head
    ]


def _check_targets(model: PreTrainedModel, layers: list[str], targets: list[str]) -> None:
    for target in targets:
        if not any(name == target or name.endswith(f".{target}") for name in layers):
            raise ModelRefused(
                f"train.lora.target_modules: {target!r} is no linear layer of {type(model).__name__} that can be "
                f"adapted; it has {', '.join(sorted(set(map(_last, layers))))}"
            )


def _last(name: str) -> str:
    return name.rsplit(".", 1)[-1]


def _config_encode(config: LoraConfig) -> bytes:
    """Return `adapter_config.json` with sorted sets, so that it is the same in every process."""
    fields = {
        key: sorted(value) if isinstance(value, set) else value for key, value in config.to_dict().items()
    }
    return json.dumps({**fields, "inference_mode": True}, indent=1, sort_keys=True, default=str).encode()
