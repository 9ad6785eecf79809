"""The embedded engine on the device: where its tensors are, its logprobs, what sleep frees, how
fast it is."""

from pathlib import Path

import numpy as np
import pytest
import torch

from tests.gpu.conftest import Figures
from tests.gpu.models import VOCABULARY, build_model, load_plain, plain_logprobs
from tests.gpu.serving import NUM_SLOTS, runner_of, served

NUM_TOKENS = 64
# Largest and mean difference from a plain forward in the same number format. bfloat16 keeps 8 bits: two orders of the
# same sums differ in the third digit of a logit.
TOLERANCES = {
    torch.float32: {"cpu": (5e-5, 5e-6), "cuda": (1e-3, 1e-4)},
    torch.bfloat16: {"cpu": (1.0, 0.05), "cuda": (1.0, 0.05)},
}
DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)


@pytest.fixture(scope="module")
def model(device: torch.device, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_model(tmp_path_factory.mktemp("model") / "model", device=device)


def prompts(num: int) -> list[list[int]]:
    rng = np.random.default_rng(0)
    return [rng.integers(3, VOCABULARY, size=16 + index % 17).tolist() for index in range(num)]


@DTYPES
async def test_logprobs_on_the_device_are_those_of_a_plain_forward_pass(
    device: torch.device, model: Path, figures: Figures, dtype: torch.dtype
) -> None:
    runner = runner_of(model, dtype=dtype, device=device)
    assert {tensor.device.type for tensor in runner._decoder.parameters.values()} == {device.type}
    plain = load_plain(model, dtype=dtype, device=device)

    async with served(runner) as engine:
        await engine.generate_all(
            prompts(NUM_SLOTS), num_tokens=NUM_TOKENS
        )  # kernels are loaded, clocks rise
        answers, seconds = await engine.generate_all(prompts(NUM_SLOTS), num_tokens=NUM_TOKENS)

    differences = np.concatenate(
        [np.abs(plain_logprobs(plain, a.prompt, a.token_ids) - np.array(a.logprobs)) for a in answers]
    )
    figures[f"engine {dtype}"] = {
        "tokens per s at 64": round(NUM_SLOTS * NUM_TOKENS / seconds),
        "mismatch max": float(differences.max()),
        "mismatch mean": float(differences.mean()),
    }
    largest, mean = TOLERANCES[dtype][device.type]
    assert differences.max() < largest
    assert differences.mean() < mean


async def test_sleep_frees_the_memory_of_the_cache(
    device: torch.device, model: Path, figures: Figures
) -> None:
    runner = runner_of(model, dtype=torch.bfloat16, device=device)
    num_bytes = runner.cache.num_bytes
    async with served(runner) as engine:
        first = await engine.generate(prompts(1)[0], num_tokens=8)
        awake = bytes_used(device)
        said = await engine.post("/sleep?level=1")
        asleep = bytes_used(device)
        assert runner.cache.num_bytes == 0
        await engine.post("/wake_up")
        woken = bytes_used(device)
        again = await engine.generate(first.prompt, num_tokens=8)

    assert runner.cache.num_bytes == num_bytes
    assert len(again.token_ids) == 8
    if device.type == "cuda":
        kept = said["kept_bytes"]
        figures["sleep"] = {"cache bytes": num_bytes, "freed bytes": awake - asleep, "kept bytes": kept}
        assert awake - asleep >= num_bytes  # given back to the card, not only to torch's own pool
        assert woken - asleep >= num_bytes


def bytes_used(device: torch.device) -> int:
    """Return the memory in use on the GPU, by anyone; 0 on a CPU, whose allocator the tests of the
    engine's process cover."""
    if device.type == "cpu":
        return 0
    torch.cuda.synchronize(device)
    free, total = torch.cuda.mem_get_info(device)
    return total - free
