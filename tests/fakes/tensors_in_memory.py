"""Weights of which all values are in memory, for tests that publish without a trainer."""

from collections.abc import Mapping, Sequence

from seamlessflow_workers.weights.tensors import RawTensor, TensorLayout


class TensorsInMemory(dict[str, RawTensor]):
    """A source whose weights are all in memory."""

    def layouts(self) -> Mapping[str, TensorLayout]:
        return {
            name: TensorLayout(dtype=raw.dtype, shape=raw.shape, num_bytes=raw.num_bytes)
            for name, raw in self.items()
        }

    def tensors(self, names: Sequence[str]) -> Mapping[str, RawTensor]:
        return {name: self[name] for name in names}
