"""Loads a model folder: takes `config.json` and safetensors and returns a `TorchRunner` that is ready to step."""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

import torch

from seamlessflow_workers.process.input_faults import input_faults, model_check
from seamlessflow_workers.rollout.engine.model.dense_decoder import DenseDecoder, dense_config
from seamlessflow_workers.rollout.engine.model.torch_runner import Decoder, TorchRunner
from seamlessflow_workers.rollout.weights import is_adapter
from seamlessflow_workers.weights.model_folder import folder_shapes


class ModelNotFoundError(ValueError):
    """The path has no model that can be loaded; the message names the missing file or field in one sentence."""


class DeviceNotFoundError(ValueError):
    """This machine does not have the device."""


class Backend(StrEnum):
    AUTO = "auto"
    DENSE = "dense"
    GENERIC = "generic"


@dataclass(frozen=True, slots=True)
class LoadOptions:
    model: Path
    weights: Path | None  # a file, a folder or an adapter; None: those of the model folder
    dtype: torch.dtype
    device: torch.device
    max_model_len: int
    num_slots: int
    backend: Backend = Backend.AUTO

    @property
    def has_other_weights(self) -> bool:
        """Whether all weights of the model folder would be overwritten at once."""
        return self.weights is not None and not is_adapter(self.weights)


def load_runner(options: LoadOptions) -> TorchRunner:
    """Load a model.

    Raises InputFault; ModelNotFoundError if the folder is not there; DeviceNotFoundError; WeightsError about other
    weights than the model's own.
    """
    config = _read_json(options.model, "config.json", is_required=True)
    _prepare_device(options.device)
    model_check(options.model, has_weights=not options.has_other_weights)
    with input_faults(options.model):
        decoder = _build_decoder(config, options)
        end_ids = _eos_token_ids(config, _read_json(options.model, "generation_config.json"))
    runner = TorchRunner(
        decoder,
        folder=options.model,
        num_rows=options.num_slots,
        max_model_len=options.max_model_len,
        eos_token_ids=end_ids,
    )
    if isinstance(decoder, DenseDecoder) and not options.has_other_weights:
        with input_faults(options.model):
            runner.stage_weights(options.model).apply()
    if options.weights is not None:
        runner.stage_weights(options.weights).apply()
    return runner


def _prepare_device(device: torch.device) -> None:
    if device.type == "cpu":
        torch.set_num_threads(1)
    elif device.type != "cuda":
        raise DeviceNotFoundError(f"--device must be cpu, cuda or cuda:N, got {device}")
    elif not torch.cuda.is_available() or (device.index or 0) >= torch.cuda.device_count():
        count = torch.cuda.device_count()
        raise DeviceNotFoundError(f"--device {device} does not exist: torch sees {count} CUDA devices")


def _build_decoder(config: Mapping[str, Any], options: LoadOptions) -> Decoder:
    limit = config.get("max_position_embeddings")
    if isinstance(limit, int) and options.max_model_len > limit:
        message = f"--max-model-len {options.max_model_len} exceeds the model's {limit} positions"
        raise ModelNotFoundError(message)
    try:
        dense = dense_config(config)
    except (KeyError, TypeError, ValueError) as error:
        raise ModelNotFoundError(
            f"{options.model / 'config.json'} has missing or wrong values: {error}"
        ) from error
    if options.backend is Backend.DENSE and dense is None:
        raise ModelNotFoundError(f"the dense backend cannot compute {config.get('architectures')}")
    if dense is not None and options.backend is not Backend.GENERIC:
        return DenseDecoder(
            dense, max_model_len=options.max_model_len, dtype=options.dtype, device=options.device
        )
    return _build_generic(options)


def _build_generic(options: LoadOptions) -> Decoder:
    os.environ["HF_HUB_OFFLINE"] = "1"
    # Imported here: transformers takes seconds to import, and the dense decoder does not need it.
    from seamlessflow_workers.rollout.engine.model.generic_decoder import GenericDecoder, load_generic_model

    model = load_generic_model(
        options.model,
        has_own_weights=not options.has_other_weights,
        dtype=options.dtype,
        device=options.device,
    )
    names = folder_shapes(options.model)
    return GenericDecoder(model, max_model_len=options.max_model_len, folder_names=names)


def _read_json(folder: Path, name: str, *, is_required: bool = False) -> dict[str, Any]:
    if not folder.is_dir():
        raise ModelNotFoundError(f"the model folder {folder} does not exist")
    path = folder / name
    if not path.is_file():
        if is_required:
            raise ModelNotFoundError(f"the model folder {folder} has no {name}")
        return {}
    try:
        content = json.loads(path.read_text())
    except (ValueError, OSError) as error:
        raise ModelNotFoundError(f"{path} cannot be read as JSON: {error}") from error
    if not isinstance(content, dict):
        raise ModelNotFoundError(f"{path} must contain a JSON object")
    return content


def _eos_token_ids(*configs: Mapping[str, Any]) -> frozenset[int]:
    found: set[int] = set()
    for config in configs:
        value = config.get("eos_token_id")
        found |= set(value) if isinstance(value, list) else {value} if isinstance(value, int) else set()
    return frozenset(found)
