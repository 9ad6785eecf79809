"""A random mixture of experts on the device: trained, published, loaded in place by a serving engine, trained again.

The mismatch is the difference between the engine's logprobs and the trainer's. Two experts that a router finds almost
equal may change places between the two, so its mean is judged more strictly than its largest.
"""

import asyncio
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from seamlessflow_workers.train.step.process_group import process_group
from tests.fakes.mixture_models import build, write
from tests.gpu.checklist.checking import Figures, item_main
from tests.gpu.models import MAX_MODEL_LEN, VOCABULARY
from tests.gpu.trainer_check import check as round_trip

HEAD_WIDTH = 64
CASES: dict[str, dict[str, Any]] = {
    "float32 rows": {"dtype": "float32", "tree": False, "zero_stage": 1},
    "bfloat16 trees ZeRO 3": {"dtype": "bfloat16", "tree": True, "zero_stage": 3},
}
MAX_MEAN_MISMATCHES = {"float32": 1e-4, "bfloat16": 0.1}
MAX_MISMATCHES = {"float32": 0.1, "bfloat16": 2.0}


def check(_device: str, sizes: list[str], figures: Figures) -> None:
    num_layers, width, num_experts = map(int, sizes)
    with TemporaryDirectory() as name, process_group():
        folder = Path(name)
        model = build(
            "qwen3_moe",
            vocab_size=VOCABULARY,
            hidden_size=width,
            intermediate_size=2 * width,
            moe_intermediate_size=width // 2,
            num_hidden_layers=num_layers,
            num_attention_heads=width // HEAD_WIDTH * 2,
            num_key_value_heads=width // HEAD_WIDTH,
            head_dim=HEAD_WIDTH,
            num_experts=num_experts,
            max_position_embeddings=MAX_MODEL_LEN,
            initializer_range=1.2 / width**0.5,
            eos_token_id=2,
            bos_token_id=None,
            pad_token_id=0,
        )
        num_parameters = sum(parameter.numel() for parameter in model.parameters())
        write(model, folder / "model")
        del model
        for case, options in CASES.items():
            row = asyncio.run(round_trip(case, options, folder / "model", folder / "versions"))
            figures.note(case, num_parameters=num_parameters, **row)
            dtype = options["dtype"]
            assert 0 < row["mismatch mean"] < MAX_MEAN_MISMATCHES[dtype], row
            assert row["mismatch max"] < MAX_MISMATCHES[dtype], row
            assert row["grad_norm after reload"] > 0, row


if __name__ == "__main__":
    item_main(check)
