"""Memory and time of two ranks that share the sequences of a tree, against ranks that each have all of its tokens.

The memory of a rank is what forward and backward pass add at their peak to the model and its gradients: activations,
logits and what attention and exchanges need in passing, without what the heap keeps of it. Each rank is one thread.
Trees are half prompt, half branches.
"""

from tests.benchmarks.report import Bound, Goal, Measured, Quantity, Row
from tests.fixtures.trainer_harness import run_check

NUM_RANKS = 2
NUM_REPEATS = 3
LENGTHS = (8192, 16_384)
BASELINE = "all tokens on each rank"
KIB = 2**10
MOST_MEMORY = 0.6
"""What two ranks may take each, as a share of one rank with all tokens."""


async def measure() -> list[Row]:
    return [row for num_tokens in LENGTHS for row in _rows(num_tokens)]


def _rows(num_tokens: int) -> list[Row]:
    arguments = [str(num_tokens), str(NUM_REPEATS)]
    printed = run_check(["tests.benchmarks.scale_out.sequence_ranks", *arguments], num_ranks=NUM_RANKS)
    sides = [[rank[side] for rank in printed.values()] for side in ("shared", "alone")]
    memory = [
        Measured([rank["peak"] / num_tokens / KIB for rank in ranks], min_repeats=NUM_RANKS)
        for ranks in sides
    ]
    seconds = [
        Measured([max(each) for each in zip(*(rank["seconds"] for rank in ranks), strict=True)])
        for ranks in sides
    ]
    name = f"{num_tokens} tokens shared by {NUM_RANKS} ranks"
    goal = Goal(MOST_MEMORY, Bound.AT_MOST, of=Quantity.RATIO)
    return [
        Row(
            f"{name}: memory of a rank per token of the tree",
            "KiB",
            memory[0],
            BASELINE,
            memory[1],
            goal,
            meaning="one value per rank",
        ),
        Row(
            f"{name}: forward and backward pass",
            "s",
            seconds[0],
            BASELINE,
            seconds[1],
            meaning="the ratio is 0.5 if sharing costs nothing",
        ),
    ]
