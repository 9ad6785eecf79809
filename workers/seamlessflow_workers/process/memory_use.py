"""How much of the host's memory a process and all that it has started use, and how much they may.

Takes a process id, and the fraction that an operator allows; returns bytes. Counted is memory that nothing but these
processes needs: anonymous memory, in RAM or swapped out. Mapped files and shared memory are not counted, and neither is
address space, of which CUDA reserves far more than it uses. Invariant: a process that ends meanwhile counts as nothing.
"""

import os
from pathlib import Path

_PROC = Path("/proc")
# Of the container, if there is one: both versions of control groups.
_CGROUP_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))
_COUNTED = ("RssAnon:", "VmSwap:")


def memory_limit_bytes(fraction: float) -> int:
    """Return this fraction of the memory that this host, or this container, has."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return int(fraction * min([total, *filter(None, map(_number, _CGROUP_LIMITS))]))


def tree_memory_bytes(pid: int) -> int:
    """Return the memory of a process and its descendants."""
    return _own_bytes(pid) + sum(map(tree_memory_bytes, _children(pid)))


def _own_bytes(pid: int) -> int:
    try:
        lines = (_PROC / str(pid) / "status").read_text().splitlines()
    except OSError:  # it has ended
        return 0
    return sum(1024 * int(line.split()[1]) for line in lines if line.startswith(_COUNTED))


def _children(pid: int) -> list[int]:
    try:
        tasks = list((_PROC / str(pid) / "task").iterdir())
    except OSError:
        return []
    return [int(child) for task in tasks for child in _text(task / "children").split()]


def _number(file: Path) -> int:
    text = _text(file).strip()
    return int(text) if text.isdigit() else 0


def _text(file: Path) -> str:
    try:
        return file.read_text()
    except OSError:
        return ""
