"""States that were taken away and brought back are the same to the bit, under real DeepSpeed in every ZeRO stage.

On a processor ZeRO 1 and 2 are what can fail here: of ZeRO 0 nothing changes its place, and ZeRO 3 stays where it is.
`tests/gpu` moves them for real.
"""

from typing import Any

import pytest

from tests.integration.trainer_harness import make_model, run_check

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    model = tmp_path_factory.mktemp("model") / "model"
    make_model(model)
    return run_check(["tests.integration.trainer_offload_check", str(model)])


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_step_after_a_reload_is_the_step_without_it(
    rows: dict[str, dict[str, Any]], dtype: str, stage: int
) -> None:
    row = rows[f"{dtype} {stage}"]
    assert row["went"] == row["stayed"]
