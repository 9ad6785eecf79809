"""Toy tasks that a tiny character model can learn: sums, string edits, and sums with an optional
scratchpad.

A task is a prompt of fixed width, so a batch of prompts needs no padding, and a function from an
answer to its reward. The warm start imitates `transcript`, which is right often enough to be found
and wrong often enough to leave something to learn.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass

LETTERS = "abcd"
CHARACTERS = "0123456789+=>.|TNRDS" + LETTERS + " "
STOP = "."
JUDGE_END, THINK, DIRECT = "|", "T", "N"
HARD_DIRECT_ACCURACY, THINKING_ACCURACY = 0.3, 0.95  # of what judged tasks' warm start imitates


@dataclass(frozen=True, slots=True)
class ToyTask:
    domain: str
    prompt: str
    answer: str
    scratchpad: str = ""  # what helps, if anything does

    def reward(self, text: str) -> float:
        """Return 1 for the right answer, whatever judgement and scratchpad come before it."""
        return float(text.rpartition("=")[2].rpartition(JUDGE_END)[2] == self.answer + STOP)


def sums() -> list[ToyTask]:
    """Return all sums of two digits: 100 tasks."""
    return [ToyTask("math", f"{a}+{b}  =", f"{a + b:02d}") for a in range(10) for b in range(10)]


def edits() -> list[ToyTask]:
    """Return the "code" side: reverse (R) three letters, drop the first (D) or swap the first two
    (S): 192 tasks."""
    words = [a + b + c for a in LETTERS for b in LETTERS for c in LETTERS]
    made: dict[str, Callable[[str], str]] = {
        "R": lambda w: w[::-1],
        "D": lambda w: w[1:],
        "S": lambda w: w[1] + w[0] + w[2],
    }
    return [ToyTask("code", f"{op}{word} =", edit(word)) for op, edit in made.items() for word in words]


def judged(num_hard: int, *, seed: int) -> list[ToyTask]:
    """Return twice as many easy tasks (copy a digit) as hard ones (a sum of four digits, helped by
    its partial sums)."""
    chance = random.Random(seed)
    easy = [ToyTask("easy", f"{n % 10}>>>>=", str(n % 10)) for n in range(2 * num_hard)]
    hard = []
    for _ in range(num_hard):
        digits = [chance.randrange(10) for _ in range(4)]
        partial = [sum(digits[:end]) % 10 for end in (2, 3)]
        prompt = "".join(map(str, digits)) + ">="
        hard.append(ToyTask("hard", prompt, str(sum(digits) % 10), scratchpad="".join(map(str, partial))))
    return easy + hard


def transcript(task: ToyTask, chance: random.Random, *, accuracy: float) -> str:
    """Return an answer that is right with this probability.

    Whether it thinks is random, whatever the task; on hard tasks it is right less often without
    thinking.
    """
    if task.domain not in ("easy", "hard"):
        return _maybe_wrong(task.answer, chance, accuracy) + STOP
    if chance.random() < 0.5:
        own = HARD_DIRECT_ACCURACY if task.domain == "hard" else accuracy
        return f"{DIRECT}{JUDGE_END}" + _maybe_wrong(task.answer, chance, own) + STOP
    scratchpad = task.scratchpad or task.answer * 2
    return f"{THINK}{JUDGE_END}{scratchpad}=" + _maybe_wrong(task.answer, chance, THINKING_ACCURACY) + STOP


def _maybe_wrong(answer: str, chance: random.Random, accuracy: float) -> str:
    if chance.random() < accuracy:
        return answer
    letters = LETTERS if answer[0] in LETTERS else "0123456789"
    return "".join(chance.choice(letters) for _ in answer)
