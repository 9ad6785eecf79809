"""`ENGINE_PYTHON -m seamlessflow_workers.rollout.vllm.main`: one vLLM engine as a process.

It takes the embedded engine's flags, offers the same HTTP surface and behaves alike (`rollout.serving.process`).
"""

import argparse
import asyncio
import json
import os
from typing import TYPE_CHECKING

from seamlessflow.core.sizing.gpu_memory import USUAL_SHARE
from seamlessflow_workers.process.input_faults import InputFault, leave_for_input, model_check
from seamlessflow_workers.rollout.serving.process import (
    REFUSED,
    arguments_parse,
    die_with_parent,
    engine_parser,
    leave,
    leave_when_told,
    serve,
)

if TYPE_CHECKING:
    from seamlessflow_workers.rollout.vllm.engine import VllmEngine

PROGRAM = "seamlessflow-vllm"

# vLLM's core and worker are spawned, and a spawned process first imports its parent's main module (unless that is a
# package's __main__, which is why this is not one). So this line makes each of them end with its parent.
die_with_parent()


def main() -> None:
    leave_when_told()
    parser = engine_parser(PROGRAM, __doc__)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument(
        "--gpu-memory-utilization",
        type=float,
        default=os.environ.get("SEAMLESSFLOW_GPU_MEMORY_SHARE") or USUAL_SHARE,
        help="fraction of a GPU's memory to use; default: SEAMLESSFLOW_GPU_MEMORY_SHARE, else 0.9",
    )
    parser.add_argument(
        "--tensor-parallel", type=int, default=1, help="devices over which each layer is sharded"
    )
    parser.add_argument(
        "--pipeline-parallel", type=int, default=1, help="stages of layers, one after the other"
    )
    parser.add_argument("--expert-parallel", action="store_true", help="give each device whole experts")
    parser.add_argument(
        "--device-cores", help="cores of each device, such as 0-3|4-7; default: those available"
    )
    parser.add_argument(
        "--engine-args", type=json.loads, default={}, help="further arguments of vLLM, as JSON"
    )
    arguments = arguments_parse(parser, counts=("tensor_parallel", "pipeline_parallel"))
    if not 0 < arguments.gpu_memory_utilization <= 1:
        parser.error(
            f"--gpu-memory-utilization must be above 0 and at most 1, got {arguments.gpu_memory_utilization}"
        )
    asyncio.run(_run(arguments))


async def _run(arguments: argparse.Namespace) -> None:
    await serve(await _start(arguments), arguments, program=PROGRAM)


async def _start(arguments: argparse.Namespace) -> "VllmEngine":
    """Return an engine that is ready. The imports are here so that a wrong argument is reported before vLLM loads."""
    if not (arguments.model / "config.json").is_file():
        leave(PROGRAM, REFUSED, f"the model folder {arguments.model} has no config.json")
    from seamlessflow_workers.rollout.vllm.options import engine_arguments, set_environment

    set_environment(arguments.device, device_cores=arguments.device_cores)
    from seamlessflow_workers.rollout.serving.served_engine import EngineSettings
    from seamlessflow_workers.rollout.vllm.engine import VllmEngine
    from seamlessflow_workers.rollout.vllm.loading import ModelRefused, load_llm, model_limits
    from seamlessflow_workers.rollout.weights import is_adapter
    from seamlessflow_workers.weights.offers import WeightsError

    settings = EngineSettings(
        model_name=arguments.served_model_name or arguments.model.resolve().name,
        weight_version=arguments.weight_version,
        max_num_queued_requests=arguments.max_num_queued_requests,
        device=arguments.device,
        model_folder=arguments.model,
    )
    try:
        model_check(arguments.model, has_weights=arguments.weights is None or is_adapter(arguments.weights))
        llm = load_llm(engine_arguments(arguments), device=arguments.device)
        engine = VllmEngine(llm, settings, model_limits(llm), can_free_memory=arguments.device == "cuda")
        await engine.prepare(arguments.weights)
    except InputFault as error:
        leave_for_input(str(error))
    except (ModelRefused, OSError, WeightsError) as error:
        leave(PROGRAM, REFUSED, str(error).splitlines()[0])
    return engine


if __name__ == "__main__":
    main()
