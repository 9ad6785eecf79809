"""The calculator tool answers two whole numbers and one operation, and nothing else."""

import pytest

from seamlessflow_workers.agents.environments.calc_tool import InvalidExpression, calculate


@pytest.mark.parametrize(
    "expression,result",
    [
        ("285*966", "275310"),
        ("7+12", "19"),
        ("7-12", "-5"),
        (" 7 * 8 ", "56"),
        ("-3*-4", "12"),
        ("5--6", "11"),
    ],
)
def test_two_numbers_and_an_operation_are_calculated(expression: str, result: str) -> None:
    assert calculate(expression) == result


@pytest.mark.parametrize(
    "expression",
    ["", "12", "2**9", "2*3*4", "1/2", "a*b", "9" * 13 + "*1", "__import__('os')", "٣*٤", "2*3\n*4"],
)
def test_anything_else_is_refused_with_what_is_accepted(expression: str) -> None:
    with pytest.raises(InvalidExpression, match=r"expected a\*b, a\+b or a-b"):
        calculate(expression)
