"""The calculator tool: its description for the model, and its answers.

`calculate` takes an expression of two whole numbers (`a*b`, `a+b`, `a-b`) and returns the result as text. Nothing is
evaluated as code.
"""

import operator
import re
from collections.abc import Callable
from typing import Any

MAX_DIGITS = 12
OPERATIONS: dict[str, Callable[[int, int], int]] = {"*": operator.mul, "+": operator.add, "-": operator.sub}
NUMBER = rf"(-?\d{{1,{MAX_DIGITS}}})"
EXPRESSION = re.compile(rf"\s*{NUMBER}\s*([*+-])\s*{NUMBER}\s*", re.ASCII)

CALC_TOOL: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "calc",
        "description": "Evaluates a*b, a+b or a-b.",
        "parameters": {
            "type": "object",
            "properties": {"expression": {"type": "string"}},
            "required": ["expression"],
        },
    },
}


class InvalidExpression(ValueError):
    """The expression is not two whole numbers joined by *, + or -."""


def calculate(expression: str) -> str:
    """Return the result as text: `calculate("285*966") == "275310"`. Raises InvalidExpression."""
    match = EXPRESSION.fullmatch(expression)
    if match is None:
        raise InvalidExpression(f"expression: expected a*b, a+b or a-b, got {expression[:40]!r}")
    left, operation, right = match.groups()
    return str(OPERATIONS[operation](int(left), int(right)))
