"""Anonymous bytes of each rank while a model is loaded, up to the optimizer.

The model has a billion random parameters in bfloat16. The baseline of each row is the size of the whole model in the
job's number format; a row's spread is over the ranks. Pages of the model's files count nowhere: they are mapped, and
the kernel can drop them at any time. So even a whole model costs little while no value is converted or sent. Before
training, a forward pass tries out whether the model can be trained on trees; it gathers a parameter at a time.
"""

from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.benchmarks.report import Bound, Goal, Measured, Quantity, Row
from tests.benchmarks.scale_out.ranks import GIB, NUM_RANKS, WHOLE, model_write, ranks_run

BILLION = (19, 2048)  # layers, width: 0.98 billion parameters
BUCKET = 0.067  # of the whole model: its largest parameter
IN_PARTS = "ZeRO 3, loaded in parts"
SIDES: Mapping[str, dict[str, Any]] = {
    # Other ranks would hold the same.
    "ZeRO 0, to float32": {"train": {"zero_stage": 0}, "num_ranks": 1, "dtype": "float32"},
    "ZeRO 3, loaded whole": {"loads_whole": True},
    "ZeRO 3, loaded whole, to float32": {"loads_whole": True, "dtype": "float32"},
    IN_PARTS: {},
    f"{IN_PARTS}, to float32": {"dtype": "float32"},
    f"{IN_PARTS}, with a reference": {"kl_coef": 0.1},
    f"{IN_PARTS}, without a probe of trees": {"train": {"tree": False}},
}
GOALS = {
    IN_PARTS: Goal(1 / NUM_RANKS + BUCKET, Bound.AT_MOST, Quantity.RATIO),
    f"{IN_PARTS}, to float32": Goal(1 / NUM_RANKS + BUCKET, Bound.AT_MOST, Quantity.RATIO),
    f"{IN_PARTS}, with a reference": Goal(2 / NUM_RANKS + BUCKET, Bound.AT_MOST, Quantity.RATIO),
}


async def measure() -> list[Row]:
    with TemporaryDirectory() as folder:
        model = Path(folder) / "model"
        model_write(model, *BILLION)
        return [_row(model, name) for name in SIDES]


def _row(model: Path, name: str) -> Row:
    side = dict(SIDES[name])
    ranks = ranks_run(model, {"zero_stage": 3, **side.pop("train", {})}, **side)
    return Row(
        f"{name}: peak of a rank",
        "GiB",
        Measured([rank["loading"] / GIB for rank in ranks], min_repeats=1),
        WHOLE,
        Measured([ranks[0]["whole"] / GIB], min_repeats=1),
        GOALS.get(name),
    )
