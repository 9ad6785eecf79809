"""Which slice of each weight one vLLM worker loads, by the layers of its model.

It takes the worker's model and the shapes of a checkpoint, and returns slices by the names of the checkpoint. vLLM cuts
queries, keys, values, gates and up projections by their outputs, output and down projections by their inputs, and
embeddings by tokens; a worker of one pipeline stage has no other stage's layers. A tensor that is not recognised is
needed whole, which costs time and nothing else.
"""

from collections.abc import Iterator, Mapping

from torch import nn
from vllm.model_executor.layers.linear import ColumnParallelLinear, QKVParallelLinear, RowParallelLinear
from vllm.model_executor.layers.vocab_parallel_embedding import VocabParallelEmbedding
from vllm.model_executor.models.utils import PPMissingLayer

from seamlessflow_workers.rollout.weights import TensorSlice, TensorSlices

Shapes = Mapping[str, tuple[int, ...]]
NOTHING = TensorSlice(dim=0, start=0, size=0)
KEYS_AND_VALUES = ("k_proj", "v_proj")


def worker_slices(model: nn.Module, shapes: Shapes) -> TensorSlices:
    """Return the slice of each tensor that this worker loads. Tensors that are not listed are needed whole."""
    fused: Mapping[str, list[str]] = getattr(model, "packed_modules_mapping", {})
    slices: dict[str, TensorSlice] = {}
    for name, module in model.named_modules():
        if isinstance(module, PPMissingLayer):
            slices |= {tensor: NOTHING for tensor in shapes if tensor.startswith(f"{name}.")}
            continue
        prefix, _, last = name.rpartition(".")
        for source in fused.get(last, [last]):
            found = _slices_of(module, source, f"{prefix}.{source}" if prefix else source, shapes)
            slices |= {tensor: own for tensor, own in found if tensor in shapes}
    return slices


def _slices_of(
    module: nn.Module, source: str, name: str, shapes: Shapes
) -> Iterator[tuple[str, TensorSlice]]:
    weight, bias = f"{name}.weight", f"{name}.bias"
    if weight not in shapes:
        return
    if isinstance(module, VocabParallelEmbedding):
        start, end = module.shard_indices.org_vocab_start_index, module.shard_indices.org_vocab_end_index
        yield weight, TensorSlice(dim=0, start=start, size=end - start)
    elif isinstance(module, RowParallelLinear):
        yield weight, _equal_slice(dim=1, length=shapes[weight][1], number=module.tp_rank, num=module.tp_size)
    elif isinstance(module, ColumnParallelLinear):
        rank, num_ranks = module.tp_rank, module.tp_size
        if isinstance(module, QKVParallelLinear) and source in KEYS_AND_VALUES:
            # With fewer heads than workers, several workers load the same head.
            rank, num_ranks = rank // module.num_kv_head_replicas, num_ranks // module.num_kv_head_replicas
        own = _equal_slice(dim=0, length=shapes[weight][0], number=rank, num=num_ranks)
        yield from ((weight, own), (bias, own))


def _equal_slice(*, dim: int, length: int, number: int, num: int) -> TensorSlice:
    return TensorSlice(dim=dim, start=length // num * number, size=length // num)
