"""Starts DeepSpeed and its process group; import `deepspeed` from this module only.

A single process needs no launcher and opens no port: its rendezvous is a store in its own memory. Under a launcher
(WORLD_SIZE above 1) the usual environment variables apply.
"""

import fcntl
import os
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch._C._distributed_c10d import HashStore, Store

# Before the import, because DeepSpeed would otherwise guess from what happens to be installed.
if (
    "DS_ACCELERATOR" not in os.environ
):  # checked first: asking torch may initialise the driver, with which a process cannot be forked
    os.environ["DS_ACCELERATOR"] = "cuda" if torch.cuda.is_available() else "cpu"

import deepspeed
import deepspeed.ops
from deepspeed.module_inject.auto_ep_layer import AutoEPMoELayer
from deepspeed.moe.utils import configure_moe_param_groups
from deepspeed.runtime import compiler

_LOOPBACK = "127.0.0.1"
_SIOCGIFADDR = 0x8915  # linux/sockios.h


def _muon_imported() -> None:
    """Import Muon without `torch.compile`. ZeRO asks of every optimizer whether it is Muon, and to decorate its kernels
    loads torch's compiler: a quarter of all that a trainer imports. No job can choose Muon."""
    decorator_of = compiler.compile
    compiler.compile = lambda: compiler.dummy_decorator
    try:
        import deepspeed.runtime.zero.muon.muon_optimizer  # noqa: F401
    finally:
        compiler.compile = decorator_of


_muon_imported()

__all__ = [
    "AutoEPMoELayer",
    "configure_moe_param_groups",
    "deepspeed",
    "process_group",
    "process_group_start",
    "training_device",
]


def process_group_start(
    *,
    rank: int | None = None,
    local_rank: int | None = None,
    num_ranks: int | None = None,
    store: Store | None = None,
    address: str = _LOOPBACK,
) -> None:
    """Start NCCL or gloo. Call once per process, before an engine is made.

    With a `store` in which all ranks meet, the arguments give its `rank` of `num_ranks`, its `local_rank` on its
    machine, and the `address` at which the others reach it. Without a store, a launcher's variables apply.
    """
    given = {"RANK": rank, "WORLD_SIZE": num_ranks, "LOCAL_RANK": local_rank}
    os.environ.update({name: str(value) for name, value in given.items() if value is not None})
    for name, value in {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1"}.items():
        os.environ.setdefault(name, value)
    if not torch.cuda.is_available():
        # DeepSpeed would compile this C++ kernel at the first start: half a minute, and a crash without a compiler.
        deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
        torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    else:
        if num_threads := os.environ.get("OMP_NUM_THREADS"):
            torch.set_num_threads(int(num_threads))
        # Before the group, because NCCL takes the current device, which is the first one for every rank by default.
        torch.cuda.set_device(training_device())
    backend = "nccl" if torch.cuda.is_available() else "gloo"
    if os.environ["WORLD_SIZE"] == "1":
        store = HashStore()
    if store is not None:
        os.environ.setdefault("MASTER_ADDR", address)
        os.environ.setdefault("MASTER_PORT", "0")  # only read, never opened
        _interface_choose(address)
        torch.distributed.init_process_group(
            backend, store=store, rank=int(os.environ["RANK"]), world_size=int(os.environ["WORLD_SIZE"])
        )
    deepspeed.init_distributed(dist_backend=backend)


def _interface_choose(address: str) -> None:
    """Have collectives use the interface that has the address.

    An interface set by hand is kept. If none is found (IPv6, a second address), torch's own guess is kept.
    """
    name = _interface_of(address)
    if name is not None:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", name)
        if address != _LOOPBACK:
            os.environ.setdefault("NCCL_SOCKET_IFNAME", name)


def _interface_of(address: str) -> str | None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        for _, name in socket.if_nameindex():
            request = struct.pack("256s", name.encode()[:15])
            try:
                answer = fcntl.ioctl(asked, _SIOCGIFADDR, request)
            except OSError:
                continue  # it has no IPv4 address
            if socket.inet_ntoa(answer[20:24]) == address:
                return name
    return None


@contextmanager
def process_group() -> Iterator[None]:
    """A process group for a script that ends by itself, together with the other ranks."""
    process_group_start()
    try:
        yield
        torch.distributed.barrier()  # a rank that leaves early would take the store, or a connection, from the others
    finally:
        torch.distributed.destroy_process_group()


def training_device() -> torch.device:
    if torch.cuda.is_available():
        return torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
    return torch.device("cpu")
