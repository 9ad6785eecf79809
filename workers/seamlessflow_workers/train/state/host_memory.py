"""How much more memory this process may take without harm to others: of the host, or of its container."""

from pathlib import Path

_MEMINFO = Path("/proc/meminfo")
_CONTAINER = Path("/sys/fs/cgroup")
_NO_LIMIT = "max"


def available_bytes(meminfo: Path = _MEMINFO, container: Path = _CONTAINER) -> int:
    """Return the bytes that are available, where page cache counts as available."""
    free = next(
        int(line.split()[1]) * 1024
        for line in meminfo.read_text().splitlines()
        if line.startswith("MemAvailable:")
    )
    headroom = _container_headroom(container)
    return free if headroom is None else min(free, headroom)


def _container_headroom(folder: Path) -> int | None:
    """Return how much below its limit a container of cgroup v2 is; None if it has none."""
    try:
        limit = (folder / "memory.max").read_text().strip()
        if limit == _NO_LIMIT:
            return None
        used = int((folder / "memory.current").read_text())
        cached = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
    except OSError:  # another version of cgroups, or none
        return None
    return int(limit) - used + int(cached.get("inactive_file", 0))
