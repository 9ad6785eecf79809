"""The fake engine with fixed durations: everything takes as long as `Pace` says, asleep, so many
engines fit on a core.

Run from the repository's root as `python -m tests.fakes.paced_engine`, with the embedded engine's
flags. Tokens and logprobs are the fake's: a pure function of prefix and version. It passes the
contract suite of all engines.
"""

import asyncio
import json
import time
from pathlib import Path

from seamlessflow_workers.rollout.engine.engine import EmbeddedEngine
from seamlessflow_workers.rollout.engine.runner import Sampled, StagedWeights, StepBatch
from seamlessflow_workers.rollout.serving.process import arguments_parse, engine_parser, serve
from seamlessflow_workers.rollout.serving.served_engine import EngineSettings
from tests.fakes.broken_machine import exit_if_broken
from tests.fakes.fake_engine import FakeRunner, Faults
from tests.fakes.pace import Pace, pace_read


class PacedRunner(FakeRunner):
    def __init__(self, *, num_rows: int, max_model_len: int, vocab_size: int, pace: Pace) -> None:
        super().__init__(
            num_rows=num_rows, max_model_len=max_model_len, vocab_size=vocab_size, faults=Faults()
        )
        self._pace = pace
        self._due_s = 0.0

    def step(self, batch: StepBatch) -> Sampled:
        """End at a multiple of the step's duration after the last step, so that late wake-ups do
        not add up."""
        num_prompt_tokens = sum(len(chunk.tokens) for chunk in batch.chunks)
        duration_s = self._pace.step_s + num_prompt_tokens * self._pace.prompt_token_s
        sampled = super().step(batch)
        now_s = time.monotonic()
        is_in_a_row = now_s - self._due_s < self._pace.step_s
        self._due_s = (self._due_s if is_in_a_row else now_s) + duration_s
        time.sleep(max(self._due_s - now_s, 0.0))
        return sampled

    def stage_weights(self, path: Path) -> StagedWeights:
        staged = super().stage_weights(path)
        time.sleep(self._pace.load_s)
        return staged

    def allocate_cache(self) -> None:
        super().allocate_cache()
        time.sleep(self._pace.wake_s)


def main() -> None:
    parser = engine_parser("paced engine", __doc__)
    parser.add_argument("--device")
    options = arguments_parse(parser)
    exit_if_broken()
    config, pace = json.loads((options.model / "config.json").read_text()), pace_read(options.model)
    time.sleep(pace.start_s)
    runner = PacedRunner(
        num_rows=options.slots,
        max_model_len=options.max_model_len,
        vocab_size=config["vocab_size"],
        pace=pace,
    )
    service = EmbeddedEngine(
        runner, EngineSettings(model_name="paced", weight_version=options.weight_version)
    )
    asyncio.run(serve(service, options, program="paced engine"))


if __name__ == "__main__":
    main()
