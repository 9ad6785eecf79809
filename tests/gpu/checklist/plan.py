"""The list: which items there are, what each proves, how long it may take, and the sizes that it is run at.

Invariants (tests/unit/checklist): a part lasts at most 9 minutes and all numbered parts together at most 28, whatever
their items do; each item that computes by itself names its sizes for a GPU and, small ones, for a processor.

A GPU is available for minutes, on a new machine without a network, with a torch that others chose. So each item is a
process with a limit, the runner needs the standard library only, and vLLM (several GB, not carried) runs last where it
is installed. Warnings are no errors here, because another torch warns of other things. Assertions are about equality
and bytes, never about time. States are compared by checksums, not by training on: a GPU's kernels may add in another
order each time.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

DEVICES = ("cuda", "cpu")
MAX_PART_S = 540.0
MAX_TOTAL_S = 1680.0
PREPARE_S = 30.0  # of a part, before its first item: carried packages are unpacked
END_S = 5.0  # of an item, after its limit: its processes are killed and collected
PATIENCE: Mapping[str, float] = MappingProxyType({"cuda": 1.0, "cpu": 3.0})  # a processor only tries the list

_PYTEST = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "default")
_WITHOUT_VLLM, _VLLM = ("-k", "not vllm"), ("-k", "vllm")


@dataclass(frozen=True, slots=True)
class Item:
    name: str
    proves: str
    limit_s: float
    arguments: tuple[str, ...]  # of Python
    sizes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # by device; further arguments

    @property
    def is_suite(self) -> bool:
        return self.arguments[: len(_PYTEST)] == _PYTEST

    def command(self, device: str) -> tuple[str, ...]:
        return (
            *self.arguments,
            *(() if self.is_suite else ("--device", device)),
            *self.sizes.get(device, ()),
        )


@dataclass(frozen=True, slots=True)
class Part:
    """What one command runs."""

    name: str
    limit_s: float
    items: tuple[Item, ...]


def _module(
    name: str, proves: str, limit_s: float, *, cuda: tuple[str, ...] = (), cpu: tuple[str, ...] = ()
) -> Item:
    sizes = {"cuda": cuda, "cpu": cpu} if cuda else {}
    return Item(name, proves, limit_s, ("-m", f"tests.gpu.checklist.{name}"), sizes)


def _suite(name: str, proves: str, limit_s: float, *paths: str, only: tuple[str, ...] = ()) -> Item:
    return Item(name, proves, limit_s, (*_PYTEST, *only, *paths))


PARTS = (
    Part(
        "1",
        300.0,
        (
            _module("packages", "the machine has what the other items need, and torch sees a card", 40),
            _suite(
                "inventory",
                "NVML's inventory is CUDA's; neither it nor the fork server initialises CUDA, and children may",
                60,
                "tests/gpu/test_inventory_on_device.py",
                "tests/gpu/test_fork_server_on_device.py",
            ),
            _suite(
                "engine",
                "the embedded engine keeps the contract of engines, with the logprobs of a plain forward pass",
                155,
                "tests/contract/engine",
                "tests/gpu/test_engine_on_device.py",
                only=_WITHOUT_VLLM,
            ),
        ),
    ),
    Part(
        "2",
        510.0,
        (
            _suite(
                "trainer",
                "steps of all forms equal one another and those of a processor; weights reach an engine from memory",
                180,
                "tests/gpu/test_trainer_on_device.py",
                "tests/gpu/test_weights_on_device.py",
            ),
            _suite(
                "jobs",
                "whole jobs whose reward rises, in float32 and bfloat16",
                290,
                "tests/gpu/test_loop_on_device.py",
                only=_WITHOUT_VLLM,
            ),
        ),
    ),
    Part(
        "3",
        540.0,
        (
            _module(
                "trees",
                "tree attention has the gradients of branches, and memory that grows with the tokens only",
                180,
                cuda=("16384", "65536", "131072"),  # tokens of a tree
                cpu=("512", "1024", "2048"),
            ),
            _module(
                "mixture",
                "a mixture of experts is trained, published and served with the trainer's logprobs",
                90,
                cuda=("8", "1024", "32"),  # layers, width, experts
                cpu=("2", "64", "4"),
            ),
            _module(
                "zero",
                "a model of 1.7 billion parameters leaves the card and comes back to the bit, at ZeRO 1 and 3",
                225,
                cuda=("28", "2048", "151936"),  # layers, width, vocabulary: Qwen3-1.7B's
                cpu=("2", "256", "4096"),
            ),
        ),
    ),
    Part(
        "4",
        330.0,
        (
            _module(
                "hand_overs",
                "engine and trainer take turns on one card, either is killed, and no memory is lost",
                130,
                cuda=("10", "8", "512"),  # hand-overs; layers and width of the model
                cpu=("10", "2", "256"),
            ),
            _module(
                "transports",
                "a version reaches the card by file and by shared memory, whole",
                160,
                cuda=("2", "16"),  # GiB of a version
                cpu=("0.125", "0.25"),
            ),
        ),
    ),
)
# Where vLLM is installed; not among the 28 minutes, because a machine with only torch has none.
WITH_VLLM = Part(
    "vllm",
    540.0,
    (
        _suite(
            "vllm",
            "vLLM keeps the contract of engines, and a job learns on it",
            500,
            "tests/contract/engine",
            "tests/gpu/test_loop_on_device.py",
            only=_VLLM,
        ),
    ),
)
ALL = {part.name: part for part in (*PARTS, WITH_VLLM)}


def longest_s(part: Part) -> float:
    """Return how long a part on a GPU can take, if all of its items run into their limits."""
    return PREPARE_S + sum(item.limit_s + END_S for item in part.items)
