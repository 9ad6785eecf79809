"""The limits of values that people write."""

from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from seamlessflow.core.types.limits import Cost, PoolName, Priority, Tag, limits_of


@pytest.mark.parametrize(
    "kind, good, bad",
    [(Tag, "rack=3", "Rack"), (PoolName, "lab-2", "-lab"), (Priority, -100, 101), (Cost, 0.01, 0.0)],
)
def test_a_job_spec_checks_what_the_type_limits(kind: Any, good: object, bad: object) -> None:
    assert TypeAdapter(kind).validate_python(good) == good
    with pytest.raises(ValidationError):
        TypeAdapter(kind).validate_python(bad)


@pytest.mark.parametrize("number", [0.0, 1000.5, float("inf"), float("nan")])
def test_a_number_outside_is_refused_with_what_is_accepted(number: float) -> None:
    assert limits_of(Cost).refusal(number) == f"{number:g} is not accepted; accepted: 0.01 to 1000"
    assert limits_of(Cost).refusal(2.5) == ""
