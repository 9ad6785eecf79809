"""Task files of the built-in environments: one JSON object per line, `{"id", "question", "answer"}`.

The same (environment, num, seed) gives the same bytes. `python -m seamlessflow_workers.example.tasks
--environment calculator --num 2000 --seed 0 --out tasks.jsonl`
"""

import argparse
import random
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path

import msgspec

FACTORS = range(320, 1000)  # calculator: every product has six digits
MAX_ADDEND = 9  # arithmetic: one digit each, so that a tiny model can know the whole table


class ExampleEnvironment(StrEnum):
    CALCULATOR = "calculator"
    ARITHMETIC = "arithmetic"


class ExampleTask(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    question: str
    answer: str


def iter_tasks(environment: ExampleEnvironment, *, num_tasks: int, seed: int) -> Iterator[ExampleTask]:
    """Yield tasks. Calculator: products of three-digit numbers. Arithmetic: sums small enough to learn by heart."""
    chance = random.Random(f"{environment}/{seed}")
    for index in range(num_tasks):
        expression, answer = _expression(environment, chance)
        question = f"What is {expression}?"
        yield ExampleTask(id=f"{environment}-{seed}-{index}", question=question, answer=answer)


def write_tasks(path: Path, environment: ExampleEnvironment, *, num_tasks: int, seed: int) -> None:
    lines = (msgspec.json.encode(task) for task in iter_tasks(environment, num_tasks=num_tasks, seed=seed))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(line + b"\n" for line in lines))


def _expression(environment: ExampleEnvironment, chance: random.Random) -> tuple[str, str]:
    if environment is ExampleEnvironment.CALCULATOR:
        left, right = chance.choice(FACTORS), chance.choice(FACTORS)
        return f"{left}*{right}", str(left * right)
    left, right = chance.randrange(MAX_ADDEND + 1), chance.randrange(MAX_ADDEND + 1)
    return f"{left}+{right}", str(left + right)


def main() -> None:
    parser = argparse.ArgumentParser(description="Write a task file for a built-in environment.")
    parser.add_argument("--environment", type=ExampleEnvironment, default=ExampleEnvironment.CALCULATOR)
    parser.add_argument("--num", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    write_tasks(options.out, options.environment, num_tasks=options.num, seed=options.seed)


if __name__ == "__main__":
    main()
