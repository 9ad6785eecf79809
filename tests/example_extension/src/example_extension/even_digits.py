"""A reward function that a tiny policy can learn within a minute: the share of even digits in its answer."""

from seamlessflow.extensions import ExtensionOptions, Task


class EvenDigits:
    async def grade(self, task: Task, answer: str) -> float:
        digits = [character for character in answer if character in "0123456789"]
        return sum(digit in "02468" for digit in digits) / len(digits) if digits else 0.0

    async def close(self) -> None:
        """Do nothing: this function holds no resources."""


def create(options: ExtensionOptions) -> EvenDigits:
    return EvenDigits()
