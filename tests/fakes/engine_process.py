"""The fake engine as a program with the embedded engine's flags, for supervisors to start.

Run from the repository's root as `python -m tests.fakes.engine_process`. `FAKE_STEP_DELAY_S` in the
environment slows it down; `FAKE_ENGINE_EXIT` makes it print something and exit at once, with the
status `FAKE_ENGINE_STATUS` or 1. With a `CountingDevice` it
allocates `FAKE_ENGINE_BYTES` (awake,asleep) from it, and exits if it does not get them.
"""

import asyncio
import os
import sys

from seamlessflow_workers.rollout.engine.engine import EmbeddedEngine
from seamlessflow_workers.rollout.serving.process import arguments_parse, engine_parser, serve
from seamlessflow_workers.rollout.serving.served_engine import EngineSettings
from tests.fakes.counting_device import CountingDevice, OutOfMemory, sizes
from tests.fakes.fake_engine import FakeRunner, Faults


class CountedRunner(FakeRunner):
    device: CountingDevice

    def allocate_cache(self) -> None:
        self.device.hold(sizes("FAKE_ENGINE_BYTES")[0])
        super().allocate_cache()

    def release_cache(self) -> int:
        super().release_cache()
        kept = sizes("FAKE_ENGINE_BYTES")[1]
        self.device.hold(kept)
        return kept


def main() -> None:
    parser = engine_parser("fake engine", __doc__)
    parser.add_argument("--device")
    options = arguments_parse(parser)
    sys.stdout.write(f"fake engine starts with version {options.weight_version}\n")
    sys.stdout.flush()
    if words := os.environ.get("FAKE_ENGINE_EXIT"):
        print(words, file=sys.stderr)
        sys.exit(int(os.environ.get("FAKE_ENGINE_STATUS", "1")))
    faults = Faults(step_delay_s=float(os.environ.get("FAKE_STEP_DELAY_S", "0.002")))
    device = CountingDevice.of_environment()
    runner = (CountedRunner if device else FakeRunner)(
        num_rows=options.slots, max_model_len=options.max_model_len, vocab_size=300, faults=faults
    )
    if isinstance(runner, CountedRunner) and device is not None:
        runner.device = device
        try:
            runner.allocate_cache()
        except OutOfMemory as error:
            sys.exit(str(error))
    service = EmbeddedEngine(runner, EngineSettings(model_name="fake", weight_version=options.weight_version))
    asyncio.run(serve(service, options, program="fake engine"))


if __name__ == "__main__":
    main()
