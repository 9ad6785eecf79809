"""Run as a script with an empty folder: models of several families and layouts of files, each loaded in parts.

Rank 0 prints one JSON line per model: whether the gathered parameters and the buffers are bit for bit those that
transformers loads, what it computes, and the bytes of this rank's partitions; then one per broken folder with the
refusal.
"""

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import (
    AutoModelForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    Qwen3Config,
    Qwen3ForCausalLM,
    Qwen3MoeConfig,
    Qwen3MoeForCausalLM,
)

from seamlessflow_workers.train.step.loading.partitioned import (
    can_load_in_parts,
    full_shape,
    gathered_in_calls,
    partitioned_load,
)
from seamlessflow_workers.train.step.process_group import deepspeed, process_group
from seamlessflow_workers.train.step_engine import ModelLoadError

SIZES: dict[str, Any] = {
    "vocab_size": 63,  # odd, so that the last partition has padding
    "hidden_size": 24,
    "intermediate_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "pad_token_id": 62,
}
NUM_TOKEN_IDS = 40  # two ranks each have some of these rows
HEADS: dict[str, Any] = {"head_dim": 16}
EXPERTS: dict[str, Any] = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 8}
MODELS: dict[str, Callable[[], PreTrainedModel]] = {
    "tied": lambda: Qwen3ForCausalLM(Qwen3Config(**SIZES, **HEADS, tie_word_embeddings=True)),
    "untied": lambda: LlamaForCausalLM(LlamaConfig(**SIZES, attention_bias=True, tie_word_embeddings=False)),
    "experts": lambda: Qwen3MoeForCausalLM(Qwen3MoeConfig(**SIZES, **EXPERTS, **HEADS)),
}
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
MAX_SHARD = "8KB"


def break_missing(values: dict[str, Tensor]) -> None:
    del values["model.norm.weight"]


def break_shape(values: dict[str, Tensor]) -> None:
    values["model.norm.weight"] = torch.ones(3)


BROKEN: dict[str, Callable[[dict[str, Tensor]], None]] = {"missing": break_missing, "shape": break_shape}


def once(write: Callable[[], object]) -> None:
    """Write on one rank, and wait for it on the others."""
    if torch.distributed.get_rank() == 0:
        write()
    torch.distributed.barrier()


def model_make(name: str, folder: Path, *, shards: bool) -> None:
    torch.manual_seed(1)
    model = MODELS[name]()
    once(lambda: model.save_pretrained(folder, max_shard_size=MAX_SHARD if shards else "1GB"))


def gathered(model: PreTrainedModel) -> dict[str, Tensor]:
    parameters = dict(model.named_parameters(remove_duplicate=False))
    with deepspeed.zero.GatheredParameters(list(model.parameters()), modifier_rank=None):
        return {name: parameter.detach().clone() for name, parameter in parameters.items()}


def same(found: dict[str, Tensor], expected: dict[str, Tensor]) -> bool:
    return found.keys() == expected.keys() and all(
        torch.equal(found[name], expected[name]) for name in expected
    )


@torch.no_grad()
def check(name: str, folder: Path, dtype: torch.dtype) -> dict[str, Any]:
    plain = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype).eval()
    model = partitioned_load(folder, dtype).eval()
    shares = [parameter.ds_tensor for parameter in model.parameters()]
    ids = torch.arange(7)[None]
    with gathered_in_calls(model):
        logits = model(input_ids=ids, use_cache=False).logits
    with gathered_in_calls(model, num_token_ids=NUM_TOKEN_IDS):
        of_few = model(input_ids=ids, use_cache=False).logits
    expected = plain(input_ids=ids, use_cache=False).logits
    return {
        "case": name,
        "num_files": len(list(folder.glob("*.safetensors"))),
        "is_same": same(gathered(model), dict(plain.named_parameters(remove_duplicate=False))),
        "has_same_buffers": same(dict(model.named_buffers()), dict(plain.named_buffers())),
        "computes_the_same": torch.equal(logits, expected),
        "num_logits_of_few": of_few.shape[-1],
        # A narrower product may add up in another order.
        "error_of_few": float((of_few - expected[..., :NUM_TOKEN_IDS]).abs().max() / expected.abs().max()),
        "padding_index": model.get_input_embeddings().padding_idx,
        "share": sum(share.numel() for share in shares),
        "whole": sum(full_shape(parameter).numel() for parameter in model.parameters()),
        "num_parameters": len(shares),
        "is_empty_afterwards": not any(parameter.numel() for parameter in model.parameters()),
        "is_tied": model.get_output_embeddings().weight is model.get_input_embeddings().weight,
    }


def refusal(name: str, folder: Path) -> dict[str, Any]:
    def write_broken() -> None:
        values = load_file(folder / "model.safetensors")
        BROKEN[name](values)
        save_file(values, folder / "model.safetensors")

    once(write_broken)
    try:
        partitioned_load(folder, torch.float32)
    except ModelLoadError as error:
        return {"case": name, "refusal": str(error)}
    return {"case": name, "refusal": None}


def rows(folder: Path) -> Iterator[dict[str, Any]]:
    for name in MODELS:
        for shards in (False, True):
            own = folder / f"{name}-{shards}"
            model_make(name, own, shards=shards)
            for dtype, kind in DTYPES.items():
                yield check(f"{name}, {dtype}{', shards' if shards else ''}", own, kind)
    for name in BROKEN:
        own = folder / name
        model_make("untied", own, shards=False)
        yield refusal(name, own)
    old = folder / "pickle"
    model_make("tied", old, shards=False)
    once(lambda: (old / "model.safetensors").rename(old / "pytorch_model.bin"))
    yield {"case": "pickle", "can_load_in_parts": can_load_in_parts(old)}


def main(folder: Path) -> None:
    for row in rows(folder):
        if torch.distributed.get_rank() == 0:
            sys.stdout.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    with process_group():
        main(Path(sys.argv[1]))
