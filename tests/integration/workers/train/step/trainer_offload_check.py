"""Run as a script: two steps with the states taken away and brought back between them, and two without, by ZeRO stage.

Prints one JSON line per case: metrics and a digest of the weights after both steps, of either run; bytes that all
tensors of the process held before the states went, that were said to be freed, and that were still held then.
"""

import gc
import hashlib
import json
import sys
from pathlib import Path

import torch

from seamlessflow.core.job_spec import JobSpec
from seamlessflow_workers.train.step.engine import TrainEngine
from seamlessflow_workers.train.step.offload import _Away
from seamlessflow_workers.train.step.process_group import process_group
from tests.fixtures.trainer_harness import make_batch, make_spec

NAMES = ("train/loss", "train/grad_norm")


def two_steps(model: Path, spec: JobSpec, memory: dict[str, int] | None = None) -> list[object]:
    """With `memory` to fill in, the states go away between the steps."""
    of_others = bytes_held()
    engine = TrainEngine(model, spec)
    own_memory(engine)
    engine.step(make_batch(1), step_version=0, optimizer_step=1)
    if memory is not None:
        memory["held"] = bytes_held() - of_others
        # The engine itself leaves the states of a processor where they are.
        memory["freed"] = engine._mover.take_away()
        memory["left"] = bytes_held() - of_others
        assert engine._mover.take_away() == 0, "they are away already"
        engine.reload()
    metrics = engine.step(make_batch(2), step_version=1, optimizer_step=2)
    digest = hashlib.sha256()
    for _, tensor in sorted(engine.tensors().items()):
        digest.update(tensor.data)
    return [*(metrics[name] for name in NAMES), digest.hexdigest()]


def own_memory(engine: TrainEngine) -> None:
    """Weights that were mapped from files, which on an accelerator none are."""
    for tensor in (*engine._engine.module.parameters(), *engine._engine.module.buffers()):
        if not tensor.untyped_storage().resizable():
            tensor.data = tensor.data.clone()


def bytes_held() -> int:
    """By the tensors of this process but for the copies on the host: whoever refers to them."""
    gc.collect()
    alive = gc.get_objects()
    copies = [value for value in alive if type(value) is _Away]
    hosts = {away.host.untyped_storage().data_ptr() for away in copies if away.host is not None}
    tensors = [value for value in alive if issubclass(type(value), torch.Tensor)]
    storages = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors}
    return sum(num_bytes for address, num_bytes in storages.items() if address not in hosts)


def main(model: Path) -> None:
    for dtype in ("float32", "bfloat16"):
        for stage in (0, 1, 2, 3):
            for lora in (None, {"rank": 4}):
                plain = make_spec(zero_stage=stage, **({"lora": lora} if lora else {}))
                model_section = {"source": "artifact://test", "dtype": dtype}
                algorithm = {"kl_coef": 0.1}  # a reference model beside it
                spec = JobSpec.model_validate({**plain, "model": model_section, "algorithm": algorithm})
                memory: dict[str, int] = {}
                row = {"stayed": two_steps(model, spec), "went": two_steps(model, spec, memory), **memory}
                print(json.dumps({"case": case_name(dtype, stage, bool(lora)), **row}), flush=True)


def case_name(dtype: str, stage: int, is_adapter: bool) -> str:
    return f"{dtype} {stage}" + (" adapter" if is_adapter else "")


if __name__ == "__main__":
    with process_group():
        main(Path(sys.argv[1]))
