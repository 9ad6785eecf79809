"""Opens the transports by which a trainer offers its versions beside their files.

It takes the job's spec and, from the environment, where this machine listens. It returns
`weights.offering.WeightOffers`, or None if the job wants files only.
"""

import os
from pathlib import Path

import torch

from seamlessflow.core.job_spec import JobSpec
from seamlessflow.core.types.transports import WeightTransport
from seamlessflow_workers.train.step_engine import ModelLoadError
from seamlessflow_workers.weights.offering import WeightOffers
from seamlessflow_workers.weights.transports.sender import LOOPBACK, SenderSettings
from seamlessflow_workers.weights.transports.table import TRANSPORTS, transports_opened


def offers_open(versions: Path, spec: JobSpec) -> WeightOffers | None:
    """Open the offers of a job; return None if it wants files only. Raises ModelLoadError."""
    transport = spec.train.weight_transport
    if transport is WeightTransport.FILE:
        return None
    has_cuda = torch.cuda.is_available()
    transport_require(transport, has_cuda=has_cuda)
    listen_host = os.environ.get("SEAMLESSFLOW_LISTEN_HOST") or LOOPBACK
    settings = SenderSettings(
        listen_host=listen_host,
        host=os.environ.get("SEAMLESSFLOW_ADVERTISED_HOST") or listen_host,
    )
    return WeightOffers(versions, transport, settings, has_cuda=has_cuda)


def transport_require(transport: WeightTransport, *, has_cuda: bool) -> None:
    """Check that this trainer can open the transport. Raises ModelLoadError."""
    opened = transports_opened(transport, has_cuda=has_cuda)
    if has_cuda or not any(TRANSPORTS[name].needs_cuda for name in opened):
        return
    accepted = (
        name for name in WeightTransport if name is WeightTransport.AUTO or not TRANSPORTS[name].needs_cuda
    )
    raise ModelLoadError(
        f"train.weight_transport is {transport}, which needs CUDA, but this trainer computes on a CPU; "
        f"accepted here: {', '.join(accepted)}"
    )
