"""The real gangs of trainers around engines that sleep: meeting, commands, phases and their ends are real.

The leader sends each step to the others and sleeps as long as they do. There are no collectives, so nobody waits for a
member that is late.
"""

import socket
import time
from collections.abc import Sequence
from concurrent.futures import Executor
from pathlib import Path

from seamlessflow.core.batching.format import Batch, batch_encode
from seamlessflow.core.job_spec import JobSpec
from seamlessflow.core.protocol.worker import GangOrder, WarmProcess
from seamlessflow_workers.train.control import ControlChannel
from seamlessflow_workers.train.distributed.gang_follower import GangFollower
from seamlessflow_workers.train.distributed.gang_leader import GangLeader
from seamlessflow_workers.train.distributed.gang_members import GangMember
from seamlessflow_workers.train.distributed.rank_commands import Load, Step, command_send
from tests.fakes.pace import Pace, pace_read
from tests.fakes.paced_step_engine import PacedStepEngine


class LeadingEngine(PacedStepEngine):
    def __init__(self, spec: JobSpec, pace: Pace, model_path: Path, members: Sequence[GangMember]) -> None:
        super().__init__(spec, pace, model_path, num_machines=1 + len(members))
        self._connections = [member.connection for member in members]

    def step(self, batch: Batch, *, step_version: int, optimizer_step: int) -> dict[str, float]:
        command = Step(batch=batch_encode(batch), step_version=step_version, optimizer_step=optimizer_step)
        command_send(self._connections, command)
        return super().step(batch, step_version=step_version, optimizer_step=optimizer_step)


class FollowingEngine(PacedStepEngine):
    """Does its share of steps; what was applied is noted by the leader only."""

    def note(self) -> None:
        return


def lead(
    model_path: Path,
    spec: JobSpec,
    *,
    members: Sequence[GangMember],
    listen_host: str,
    artifacts: Path | None,
) -> LeadingEngine:
    order = Load(
        rank=0,
        local_rank=0,
        num_ranks=1 + len(members),  # one on each machine
        store_host=listen_host,
        store_port=0,
        address="",
        model_path=str(model_path),
        spec=spec.model_dump_json().encode(),
    )
    command_send([member.connection for member in members], order)
    pace = pace_read(model_path)
    time.sleep(pace.start_s)
    return LeadingEngine(spec, pace, model_path, members)


def follow(load: Load, connection: socket.socket) -> FollowingEngine:
    model_path = Path(load.model_path)
    pace = pace_read(model_path)
    time.sleep(pace.start_s)
    spec = JobSpec.model_validate_json(load.spec)
    return FollowingEngine(spec, pace, model_path, num_machines=load.num_ranks)


def gang_worker(
    gang: GangOrder,
    *,
    warm_process: WarmProcess,
    spec: JobSpec,
    executor: Executor,
    channel: ControlChannel,
    listening: socket.socket,
) -> GangLeader | GangFollower:
    if not gang.leads:
        return GangFollower(executor=executor, channel=channel, follow=follow)
    return GangLeader(
        warm_process=warm_process,
        spec=spec,
        executor=executor,
        channel=channel,
        listening=listening,
        lead=lead,
        open_offers=lambda *_: None,
    )
