"""Which part of each weight one vLLM worker loads, by the layers of its model.

It takes the worker's model and the shapes of a checkpoint, and returns parts by the names of the checkpoint. vLLM cuts
queries, keys, values, gates and up projections by their outputs, output and down projections by their inputs, and
embeddings by tokens; a worker of one pipeline stage has no other stage's layers. What is not recognised is needed
whole, which costs time and nothing else.
"""

from collections.abc import Iterator, Mapping

from torch import nn
from vllm.model_executor.layers.linear import ColumnParallelLinear, QKVParallelLinear, RowParallelLinear
from vllm.model_executor.layers.vocab_parallel_embedding import VocabParallelEmbedding
from vllm.model_executor.models.utils import PPMissingLayer

from seamlessflow_workers.rollout.weights import Part, Parts

Shapes = Mapping[str, tuple[int, ...]]
NOTHING = Part(dim=0, start=0, size=0)
KEYS_AND_VALUES = ("k_proj", "v_proj")


def worker_parts(model: nn.Module, shapes: Shapes) -> Parts:
    """Return the part of each tensor that this worker loads. What is not listed is needed whole."""
    fused: Mapping[str, list[str]] = getattr(model, "packed_modules_mapping", {})
    parts: dict[str, Part] = {}
    for name, module in model.named_modules():
        if isinstance(module, PPMissingLayer):
            parts |= {tensor: NOTHING for tensor in shapes if tensor.startswith(f"{name}.")}
            continue
        prefix, _, last = name.rpartition(".")
        for source in fused.get(last, [last]):
            found = _parts_of(module, source, f"{prefix}.{source}" if prefix else source, shapes)
            parts |= {tensor: part for tensor, part in found if tensor in shapes}
    return parts


def _parts_of(module: nn.Module, source: str, name: str, shapes: Shapes) -> Iterator[tuple[str, Part]]:
    weight, bias = f"{name}.weight", f"{name}.bias"
    if weight not in shapes:
        return
    if isinstance(module, VocabParallelEmbedding):
        start, end = module.shard_indices.org_vocab_start_index, module.shard_indices.org_vocab_end_index
        yield weight, Part(dim=0, start=start, size=end - start)
    elif isinstance(module, RowParallelLinear):
        yield weight, _share(dim=1, length=shapes[weight][1], number=module.tp_rank, num=module.tp_size)
    elif isinstance(module, ColumnParallelLinear):
        rank, num_ranks = module.tp_rank, module.tp_size
        if isinstance(module, QKVParallelLinear) and source in KEYS_AND_VALUES:
            # With fewer heads than workers, several workers load the same head.
            rank, num_ranks = rank // module.num_kv_head_replicas, num_ranks // module.num_kv_head_replicas
        part = _share(dim=0, length=shapes[weight][0], number=rank, num=num_ranks)
        yield from ((weight, part), (bias, part))


def _share(*, dim: int, length: int, number: int, num: int) -> Part:
    return Part(dim=dim, start=length // num * number, size=length // num)
