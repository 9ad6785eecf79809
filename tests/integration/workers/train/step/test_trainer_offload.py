"""States that were taken away and brought back are the same to the bit, under real DeepSpeed in every ZeRO stage.

On a processor too their memory is really given up while they are away; `tests/gpu` does it with a card's.
"""

from typing import Any

import pytest

from tests.fixtures.trainer_harness import make_model, run_check

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    model = tmp_path_factory.mktemp("model") / "model"
    make_model(model)
    return run_check(["tests.integration.workers.train.step.trainer_offload_check", str(model)])


@pytest.mark.parametrize("kind", ["", " adapter"])
@pytest.mark.parametrize("stage", [0, 1, 2, 3])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_states_leave_nothing_behind_and_come_back_to_the_bit(
    rows: dict[str, dict[str, Any]], dtype: str, stage: int, kind: str
) -> None:
    row = rows[f"{dtype} {stage}{kind}"]
    assert row["went"] == row["stayed"]
    assert row["left"] <= 0, "bytes of tensors that some part of DeepSpeed still holds"
    assert row["freed"] >= row["held"] > 0
