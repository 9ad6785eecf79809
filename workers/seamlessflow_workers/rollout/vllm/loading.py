"""Makes an `AsyncLLM` from engine arguments, or reports in one sentence why that is impossible."""

import json
from pathlib import Path
from typing import Any

from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.platforms import current_platform
from vllm.v1.engine.async_llm import AsyncLLM

from seamlessflow_workers.process.input_faults import input_faults
from seamlessflow_workers.rollout.serving.served_engine import ModelLimits
from seamlessflow_workers.rollout.vllm.options import refusal


class ModelRefused(ValueError):
    """vLLM cannot serve the model as asked, here."""


def load_llm(engine_arguments: dict[str, Any], *, device: str) -> AsyncLLM:
    """Start vLLM's processes and load the model. Raises ModelRefused, or InputFault if no machine could."""
    if current_platform.device_type != device:
        raise ModelRefused(
            f"this vLLM was built for {current_platform.device_type or 'no device'}, but --device is {device}"
        )
    if reason := refusal(Path(engine_arguments["model"]), device):
        raise ModelRefused(reason)
    with input_faults(
        Path(engine_arguments["model"])
    ):  # it reads the config and knows the model's kind, or not
        arguments = AsyncEngineArgs(**engine_arguments)
        arguments.create_model_config()
    try:
        return AsyncLLM.from_engine_args(arguments)
    except (ValueError, OSError, RuntimeError) as error:
        raise ModelRefused(f"vLLM cannot serve {engine_arguments['model']}: {_last_line(error)}") from error


def model_limits(llm: AsyncLLM) -> ModelLimits:
    config = llm.model_config
    folder = Path(config.model)
    return ModelLimits(
        vocab_size=config.get_vocab_size(),
        max_model_len=config.max_model_len,
        eos_token_ids=_eos_token_ids(folder / "config.json")
        | _eos_token_ids(folder / "generation_config.json"),
    )


def _eos_token_ids(path: Path) -> frozenset[int]:
    value = json.loads(path.read_text()).get("eos_token_id") if path.is_file() else None
    return frozenset(value if isinstance(value, list) else [] if value is None else [value])


def _last_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__
