"""The ways by which new weights reach an engine."""

from enum import StrEnum


class WeightTransport(StrEnum):
    """auto: the engine chooses. ipc: shared memory of one host; cuda_ipc: of one card. nccl, gloo: a broadcast between
    GPUs, processors."""

    AUTO = "auto"
    FILE = "file"
    IPC = "ipc"
    CUDA_IPC = "cuda_ipc"
    NCCL = "nccl"
    GLOO = "gloo"
