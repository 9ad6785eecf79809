"""`python -m seamlessflow_workers.rollout.engine`: one embedded engine as a process (see `serving.process`)."""

import argparse
import secrets
import sys
from typing import TYPE_CHECKING

import uvloop

from seamlessflow_workers.process.input_faults import InputFault, leave_for_input
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
    from seamlessflow_workers.rollout.engine.engine import EmbeddedEngine

PROGRAM = "seamlessflow-engine"
# The event loop and the engine's thread use one interpreter lock: neither should wait 5 ms for the other.
SWITCH_INTERVAL_S = 0.0005


def main() -> None:
    die_with_parent()
    leave_when_told()
    parser = engine_parser(PROGRAM, __doc__)
    parser.add_argument("--max-num-batched-tokens", type=int, default=1024, help="prompt tokens per step")
    parser.add_argument("--device", default="cpu", help="cpu, cuda or cuda:N")
    parser.add_argument("--backend", choices=("auto", "dense", "generic"), default="auto")
    arguments = arguments_parse(parser, counts=("max_num_batched_tokens",))
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    uvloop.run(_run(arguments))


async def _run(arguments: argparse.Namespace) -> None:
    await serve(_load(arguments), arguments, program=PROGRAM)


def _load(arguments: argparse.Namespace) -> "EmbeddedEngine":
    """Load the engine. The imports are here so that a wrong argument is reported before torch is loaded."""
    import torch

    from seamlessflow_workers.rollout.engine.engine import EmbeddedEngine
    from seamlessflow_workers.rollout.engine.model.loading import Backend, LoadOptions, load_runner
    from seamlessflow_workers.rollout.serving.served_engine import EngineSettings

    try:
        runner = load_runner(
            LoadOptions(
                model=arguments.model,
                weights=arguments.weights,
                dtype=getattr(torch, arguments.dtype),
                device=torch.device(arguments.device),
                max_model_len=arguments.max_model_len,
                num_slots=arguments.slots,
                backend=Backend(arguments.backend),
            )
        )
    except InputFault as error:
        leave_for_input(str(error))
    except (ValueError, OSError, RuntimeError) as error:
        leave(PROGRAM, REFUSED, str(error).splitlines()[0])
    settings = EngineSettings(
        model_name=arguments.served_model_name or arguments.model.resolve().name,
        weight_version=arguments.weight_version,
        max_batched_tokens=arguments.max_num_batched_tokens,
        max_num_queued_requests=arguments.max_num_queued_requests,
        # Two engines must not draw the same numbers: siblings of a group would be copies of one another.
        seed=secrets.randbits(64) if arguments.seed is None else arguments.seed,
        device=torch.device(arguments.device).type,
        model_folder=arguments.model,
    )
    return EmbeddedEngine(runner, settings)


if __name__ == "__main__":
    main()
