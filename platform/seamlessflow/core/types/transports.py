"""How new weights reach an engine."""

from enum import StrEnum


class WeightTransport(StrEnum):
    """auto: the engine chooses. ipc: shared memory on one host. nccl: a broadcast between GPUs. gloo: a broadcast
    between CPUs. file: no transport, engines read the files."""

    AUTO = "auto"
    FILE = "file"
    IPC = "ipc"
    NCCL = "nccl"
    GLOO = "gloo"
