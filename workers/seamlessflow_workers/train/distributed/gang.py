"""Decides whether this machine's trainer leads or follows its gang."""

import socket
from concurrent.futures import Executor

from seamlessflow.core.job_spec import JobSpec
from seamlessflow.core.protocol.worker import GangOrder, WarmProcess
from seamlessflow_workers.train.control import ControlChannel
from seamlessflow_workers.train.distributed.gang_follower import GangFollower
from seamlessflow_workers.train.distributed.gang_leader import GangLeader
from seamlessflow_workers.train.distributed.rank_group import gang_follow, gang_lead
from seamlessflow_workers.train.weight_offers import offers_open


def gang_worker(
    gang: GangOrder,
    *,
    warm_process: WarmProcess,
    spec: JobSpec,
    executor: Executor,
    channel: ControlChannel,
    listening: socket.socket,
) -> GangLeader | GangFollower:
    """Return the worker for the gang of a process's first phase; later phases have the same role in it."""
    if gang.leads:
        return GangLeader(
            warm_process=warm_process,
            spec=spec,
            executor=executor,
            channel=channel,
            listening=listening,
            lead=gang_lead,
            open_offers=offers_open,
        )
    return GangFollower(executor=executor, channel=channel, follow=gang_follow)
