"""Settings of one supervisor: flags, and what `variables` names from the environment.

Invariant: a setting that cannot work is refused at the start with the accepted values, or replaced with a warning.
"""

import argparse
import logging
import os
import re
import socket
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from seamlessflow.core.job_spec import EngineKind
from seamlessflow.core.types.devices import (
    Device,
    DeviceKind,
    InvalidDevices,
    is_core_sets,
    select_core_sets,
    select_gpus,
)
from seamlessflow.runtime.variables import Reader
from seamlessflow_workers.process.device_environment import devices_cores
from seamlessflow_workers.process.environment import DEVICE_ENVIRONMENT
from seamlessflow_workers.process.memory_use import memory_limit_bytes
from seamlessflow_workers.process.settings import (
    ChildSettings,
    EngineFinding,
)
from seamlessflow_workers.supervisor import variables
from seamlessflow_workers.supervisor.capabilities import find_vllm, vllm_python
from seamlessflow_workers.supervisor.device_watch import Probe
from seamlessflow_workers.supervisor.inventory import (
    memory_bytes,
    probe_devices,
    processor_name,
    visible_gpus,
)

KINDS = tuple(DEVICE_ENVIRONMENT)
UNSPECIFIED = ("0.0.0.0", "::")  # noqa: S104 - compared with, not bound
MACHINE_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")

DEFAULT_AGENT_SLOTS = 4
MAX_AGENT_SLOTS = 64

log = logging.getLogger(__name__)


class InvalidFlag(ValueError):
    """A flag has a value that cannot be used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SupervisorConfig(ChildSettings):
    """What children are started with, and what only the supervisor itself needs."""

    name: str
    # The host's name; the machines that are slices of one host have the same.
    host: str
    token: str
    home: Path
    broker_url: str | None
    # For how many jobs it runs agents at once, beside what else it does.
    agent_slots: int = DEFAULT_AGENT_SLOTS
    # Asks the host how its devices are.
    probe: Probe = probe_devices
    # Whether to keep a process that has done the children's imports and forks them.
    has_fork_server: bool = True


def read_config(arguments: Sequence[str], environment: Mapping[str, str]) -> SupervisorConfig:
    """Read the configuration. Raises InvalidFlag, InvalidSetting, or exits with the parser's own message."""
    reader = Reader(environment)
    options = _parser(reader).parse_args(arguments)
    if not MACHINE_NAME.fullmatch(options.name):
        raise InvalidFlag(f"--name {options.name!r} must match {MACHINE_NAME.pattern}")
    if not options.control_plane_url.startswith(("http://", "https://")):
        raise InvalidFlag(
            f"--control-plane-url {options.control_plane_url!r} must begin with http:// or https://"
        )
    if not 1 <= options.agent_slots <= MAX_AGENT_SLOTS:
        raise InvalidFlag(f"--agent-slots {options.agent_slots} must be from 1 to {MAX_AGENT_SLOTS}")
    available = _usable_cores(options.cores)
    try:
        devices = _choose_devices(options.device, options.devices, available, environment)
    except InvalidDevices as error:
        raise InvalidFlag(str(error)) from error
    device = devices[0].kind
    embedded = options.engine_python or reader.read(variables.ENGINE_PYTHON) or sys.executable
    vllm = options.engine_python or vllm_python(environment)
    return SupervisorConfig(
        name=options.name,
        host=options.host_name,
        control_plane_url=options.control_plane_url.rstrip("/"),
        token=_read_token(options.token_file),
        cores=devices_cores(devices, otherwise=available) if options.devices else available,
        home=options.home,
        device=device,
        devices=devices,
        broker_url=reader.read(variables.BROKER_URL) or None,
        listen_host=options.listen_host,
        advertised_host=_advertised_host(options.listen_host, options.advertised_host),
        has_fork_server=options.fork_server,
        agent_slots=options.agent_slots,
        gpu_memory_fraction=reader.read(variables.GPU_MEMORY_SHARE),
        memory_limit_bytes=memory_limit_bytes(reader.read(variables.MEMORY_SHARE)),
        engine_commands={
            EngineKind.EMBEDDED: (embedded, "-m", "seamlessflow_workers.rollout.engine"),
            EngineKind.VLLM: (vllm, "-m", "seamlessflow_workers.rollout.vllm.main"),
        },
        engines={
            EngineKind.EMBEDDED: EngineFinding("seamlessflow"),
            EngineKind.VLLM: find_vllm(vllm, device=device),
        },
    )


def _parser(reader: Reader) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="seamlessflow-supervisor", description="Runs one machine of a cluster."
    )
    parser.add_argument("--name", required=True, help="the machine's name, as registered")
    parser.add_argument("--control-plane-url", required=True)
    parser.add_argument("--token-file", required=True, type=Path, help="file with the machine's token")
    parser.add_argument(
        "--cores", help="cores for the children, such as 0 or 0,2 or 0-3; default: all that are available"
    )
    parser.add_argument("--home", type=Path, default=Path(reader.read(variables.HOME)))
    parser.add_argument(
        "--listen-host",
        default=reader.read(variables.LISTEN_HOST),
        help="address at which gateways reach engines, and other machines' trainers reach this machine's: 0.0.0.0 if "
        "they are on other hosts; default: loopback",
    )
    parser.add_argument(
        "--advertised-host",
        default=reader.read(variables.ADVERTISED_HOST) or None,
        help="name or address of this machine for gateways and other machines; default: the address where it listens, "
        "or its host name if that stands for all interfaces",
    )
    parser.add_argument(
        "--agent-slots",
        type=int,
        default=DEFAULT_AGENT_SLOTS,
        help="for how many jobs it runs agents at the same time, if it has the tag agent; default: %(default)s",
    )
    parser.add_argument(
        "--engine-python",
        help="interpreter for engines; default: ENGINE_PYTHON, else our own, for vLLM the environment beside it",
    )
    parser.add_argument(
        "--fork-server",
        action=argparse.BooleanOptionalAction,
        default=reader.read(variables.FORK_SERVER) != "off",
        help="keep one process that has done the children's imports, so that they start at once; default: on",
    )
    parser.add_argument(
        "--device",
        choices=KINDS,
        default=reader.read(variables.DEVICE) if reader.has(variables.DEVICE) else None,
        help="kind of device of engines and trainers; default: that of --devices, else cuda if there is a GPU",
    )
    parser.add_argument(
        "--devices",
        default=reader.read(variables.DEVICES) or None,
        help="what engines and trainers compute on: GPUs by number or UUID, such as 0-5 or 0,1, or sets of cores, such "
        "as cpu:0,cpu:1 (two devices) or cpu:0-3 (one of four cores); default: all GPUs that are visible, on a CPU one "
        "device of all cores",
    )
    parser.add_argument(
        "--host-name",
        default=reader.read(variables.HOST_NAME) or socket.gethostname(),
        help="name of the host that this machine is on or a slice of; default: %(default)s",
    )
    return parser


def _choose_devices(
    kind: DeviceKind | None, text: str | None, cores: frozenset[int], environment: Mapping[str, str]
) -> tuple[Device, ...]:
    """Return the machine's devices, at least one. Raises InvalidDevices."""
    named: DeviceKind | None = None if text is None else "cpu" if is_core_sets(text) else "cuda"
    if kind and named and kind != named:
        raise InvalidDevices(f"devices {text!r} are of the kind {named}, but --device says {kind}")
    gpus = () if (kind or named) == "cpu" else visible_gpus(environment)
    wanted = kind or named or ("cuda" if gpus else "cpu")
    if wanted == "cuda" and not gpus:
        raise InvalidDevices(f"{f'devices {text!r}' if text else '--device cuda'}: this host shows no GPU")
    if wanted == "cuda":
        return select_gpus(text, found=gpus)
    return select_core_sets(text, available=cores, name=processor_name(), memory_bytes=memory_bytes())


def _advertised_host(listen_host: str, given: str | None) -> str:
    """Return the address for others, who cannot use one that stands for all interfaces. Raises InvalidFlag."""
    if given in UNSPECIFIED:
        raise InvalidFlag(
            f"--advertised-host {given!r} is not the address of a machine; give the one that gateways can reach"
        )
    return given or (socket.gethostname() if listen_host in UNSPECIFIED else listen_host)


def _read_token(path: Path) -> str:
    try:
        token = path.read_text().strip()
    except OSError as error:
        raise InvalidFlag(f"--token-file {path}: {error.strerror}") from error
    if not token:
        raise InvalidFlag(f"--token-file {path} is empty; it must contain the machine's token")
    return token


def _usable_cores(text: str | None) -> frozenset[int]:
    available = frozenset(os.sched_getaffinity(0))
    if text is None:
        return available
    wanted = _parse_cores(text)
    if wanted <= available:
        return wanted
    log.warning(
        "--cores %s: this machine only has %s; using those", text, ",".join(map(str, sorted(available)))
    )
    return wanted & available or available


def _parse_cores(text: str) -> frozenset[int]:
    cores: set[int] = set()
    for span in text.split(","):
        first, _, last = span.partition("-")
        if not first.isdigit() or (last and not last.isdigit()):
            raise InvalidFlag(f"--cores {text!r} must be numbers and ranges, such as 0 or 0,2 or 0-3")
        cores.update(range(int(first), int(last or first) + 1))
    return frozenset(cores)
