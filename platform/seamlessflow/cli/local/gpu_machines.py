"""Which machines a host with GPUs becomes, and in words why.

Enters: the GPUs and cores of this host. Leaves: machines to run, and a line for people. Invariant: machines that
compute have GPUs of their own, as far as there are enough; a machine of agents has none.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from seamlessflow.cli.errors import CliError
from seamlessflow.cli.local.machines import LocalMachine
from seamlessflow.core.types.device_cores import even_runs
from seamlessflow.core.types.devices import Device, InvalidDevices, core_set_id
from seamlessflow.core.types.labels import gpu_model
from seamlessflow.core.types.tags import EXCLUSIVE_ROLES
from seamlessflow_workers.supervisor.inventory import visible_gpus

# All GPUs of one machine roll out, then train, so none waits for another; agents mostly wait, and need none.
NODE = (LocalMachine("alpha", ("rollout", "train")), LocalMachine("gamma", ("agent",)))


def gpus_here(environ: Mapping[str, str]) -> tuple[Device, ...]:
    """Return the GPUs that machines of this host may use; none if the settings choose the processor."""
    if environ.get("SEAMLESSFLOW_DEVICE") == "cpu":
        return ()
    try:
        return visible_gpus(environ)
    except InvalidDevices as error:
        raise CliError(str(error), exit_code=2) from error


def placed(
    machines: Sequence[LocalMachine], gpus: Sequence[Device], *, cores: Collection[int]
) -> tuple[LocalMachine, ...]:
    """Return the machines on the GPUs: those that compute get equally many of them, the others cores only. With fewer
    GPUs than such machines, some have the same one. Without GPUs, the machines are unchanged."""
    if not gpus:
        return tuple(machines)
    computing = [machine for machine in machines if EXCLUSIVE_ROLES & set(machine.tags)]
    runs = even_runs(gpus, len(computing))
    return tuple(
        replace(machine, core=None, devices=",".join(gpu.id for gpu in runs[computing.index(machine)]))
        if machine in computing
        else replace(machine, devices=core_set_id(cores))
        for machine in machines
    )


def placement_line(machines: Sequence[LocalMachine], gpus: Sequence[Device]) -> str:
    """Return a line with the GPUs that were found and the machine of each."""
    models = ", ".join(sorted({gpu_model(gpu.name) for gpu in gpus}))
    numbers = {gpu.id: str(number) for number, gpu in enumerate(gpus)}
    placed = [
        f"{machine.name} {{{', '.join(machine.tags)}}} on {_where(machine.devices or '', numbers)}"
        for machine in machines
    ]
    return f"gpus       {len(gpus)} found ({models}): {'; '.join(placed)}"


def _where(devices: str, numbers: dict[str, str]) -> str:
    named = [numbers[one] for one in devices.split(",") if one in numbers]
    if not named:
        return "the processor"
    return f"GPU {named[0]}" if len(named) == 1 else f"GPUs {', '.join(named)}"
