"""The warm trainer: it keeps a policy in memory between phases and works through batches under an order.

Batch n makes version (n + offset), where the offset changes only if a job was forked. For each batch: lease it, step
(while the next batch is leased and a checkpoint is written), begin a checkpoint if due, publish. The feed hears of a
checkpoint once it is durable. After a resume the batches up to the latest published version are applied again without
publishing; a version that was made and saved in a checkpoint, but not announced before a crash, is announced first. So
each batch is in the published weights exactly once, whatever crashed.
"""

import asyncio
import logging
import math
import time
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Protocol, TypeVar

from seamlessflow.core.artifacts.store_paths import NUM_KEPT_CHECKPOINTS
from seamlessflow.core.batching.format import Batch
from seamlessflow.core.job_spec import JobSpec
from seamlessflow.core.protocol.child import Doing
from seamlessflow.core.protocol.data_plane import BatchLeaseRequest
from seamlessflow.core.protocol.worker import PhaseOrder, Publication, WarmProcess
from seamlessflow.core.scheduling.turn_ends import BatchArrivalEstimator, is_fulfilled, patience_s
from seamlessflow.core.types.ids import IdKind, parse_id
from seamlessflow.core.types.ledger import IdleCause, LedgerState
from seamlessflow_workers.clients.trainer import TrainerClient
from seamlessflow_workers.train.checkpoint import (
    PROGRESS_NAME,
    Progress,
    Saving,
    checkpoint_begin,
    checkpoint_finish,
    checkpoint_load,
    progress_read,
)
from seamlessflow_workers.train.step_engine import DeviceUse, StepEngine
from seamlessflow_workers.train.step_watch import StepWatch
from seamlessflow_workers.weights.artifacts import JobArtifacts
from seamlessflow_workers.weights.sealed_shards import SealedShards
from seamlessflow_workers.weights.transports.file.sending import PublishedWeights, weights_publish

logger = logging.getLogger(__name__)

DRAIN_GRACE_S = 10.0  # how long a drained trainer still tries to announce the version that it has made
_T = TypeVar("_T")
Reporter = Callable[[Doing], None]


class VersionOffers(Protocol):
    """Hands versions from memory to engines: `weights.offering.WeightOffers`."""

    def shards(self) -> SealedShards:
        """Return an empty container for the shards of a version, which is filled while the version is written."""
        ...

    def offer(self, shards: SealedShards, *, version: int, manifest_sha256: str) -> None:
        """Offer a version and become the owner of `shards`."""
        ...


class BatchMismatch(ValueError):
    """The gateway returned a batch of another job."""


class Trainer:
    """One per process. Engine calls run in `executor`, one at a time; everything else on the event loop."""

    def __init__(
        self,
        *,
        warm_process: WarmProcess,
        spec: JobSpec,
        engine: StepEngine,
        executor: Executor,
        report: Reporter,
        artifacts: JobArtifacts,
        offers: VersionOffers | None = None,
    ) -> None:
        self._warm_process = warm_process
        self._spec = spec
        self._engine = engine
        self._executor = executor
        self._report = report
        self._offers = offers
        self._artifacts = artifacts
        self._progress = Progress()
        self._published_version = warm_process.weights.version
        self._durable_batch = 0
        # Of the checkpoint at `_progress`, if there is one or will be.
        self._checkpoint_uri: str | None = None
        self._saving: Saving | None = None  # a checkpoint that is being written
        self._ahead: asyncio.Task[Batch] | None = None  # leases the batch after the present one
        self._arrivals = BatchArrivalEstimator()
        self._steps = StepWatch()
        self._client: TrainerClient | None = None  # of the present phase
        self.is_stepping = False  # in a step: nothing of it is on disk yet
        self.is_discarded = False  # the job of the present phase is cancelled

    async def resume(self) -> None:
        """Load the newest checkpoint if it is ahead of the weights in memory. Raises CheckpointReadError,
        StoreError."""
        newest = await self._off_loop(lambda: self._artifacts.checkpoint_newest(PROGRESS_NAME))
        if newest is None:
            return
        number, raw = newest
        url = self._artifacts.checkpoint_url(number)
        progress = progress_read(raw, url)
        self._durable_batch = progress.batch_number
        if progress.version <= self._progress.version:
            return
        await self._off_loop(lambda: self._load(number))
        self._progress, self._checkpoint_uri = progress, url
        logger.info("resumed at batch %d, version %d", progress.batch_number, progress.version)

    def _load(self, batch_number: int) -> None:
        with self._artifacts.checkpoint_pin(batch_number) as pinned:
            checkpoint_load(pinned.path, self._engine)

    async def run_phase(self, order: PhaseOrder, drained: asyncio.Event) -> str:
        """Work until the order is fulfilled or drained, or the job complete; return which of these, for people.

        Raises StepStalled, after which the process must exit, because its computing thread may never return.
        """
        await self._off_loop(self._engine.reload)
        await self.resume()  # another machine may have trained meanwhile
        self._published_version = max(self._published_version, order.weights.version)
        client = TrainerClient(
            gateway_url=self._warm_process.gateway_url,
            control_plane_url=self._warm_process.control_plane_url,
            credential=order.credential,
        )
        async with client:
            self._client, self.is_discarded = client, False
            try:
                return await self._work(order, client, drained)
            finally:
                self._client = None
                await self._ahead_forget()

    async def device_leave(self) -> DeviceUse:
        """Complete the checkpoint in progress, and leave the accelerator to others until the next phase."""
        await self._checkpoint_finish()
        use = await self._off_loop(self._engine.offload)
        if use.freed_bytes:
            logger.info(
                "%.1f GB of the accelerator's memory are free until the next phase", use.freed_bytes / 1e9
            )
        return use

    def renew(self, credential: str) -> None:
        """Use a new credential from now on."""
        if self._client is not None:
            self._client.renew(credential)

    async def _work(self, order: PhaseOrder, client: TrainerClient, drained: asyncio.Event) -> str:
        num_published = 0
        while True:
            if self._progress.version > self._published_version:
                if await self._publish(client, drained):
                    return "the job has all its updates"
                num_published += 1
            has_all = is_fulfilled(num_published, order.num_batches)
            if has_all and not await self._is_next_at_hand(drained):
                if order.leaves_checkpoint:
                    await self._save_before_leaving()
                return f"{num_published} batches trained"
            batch = await self._lease(client, drained)
            if batch is None:
                await self._save_before_leaving()
                return "drained"
            await self._apply(client, *batch)

    async def _is_next_at_hand(self, drained: asyncio.Event) -> bool:
        """Whether the next batch is here, or comes while waiting is cheaper than handing the machine over and back."""
        if self._ahead is None or drained.is_set():
            return False
        if not self._ahead.done() and (timeout_s := patience_s(self._arrivals, time.monotonic())):
            self._report(Doing(state=LedgerState.IDLE, cause=IdleCause.NO_BATCH))
            await asyncio.wait({self._ahead}, timeout=timeout_s)
        return self._ahead.done()

    async def _lease(self, client: TrainerClient, drained: asyncio.Event) -> tuple[Batch, float] | None:
        """Return the next batch and the seconds of waiting; None if drained, which cuts the long poll short."""
        if drained.is_set():
            return None
        started_s = time.monotonic()
        lease = self._ahead or asyncio.create_task(client.batch_lease(self._request(num_held=0)))
        self._ahead = None
        if not lease.done():
            self._report(Doing(state=LedgerState.IDLE, cause=IdleCause.NO_BATCH))
        drain = asyncio.create_task(drained.wait())
        try:
            await asyncio.wait((lease, drain), return_when=asyncio.FIRST_COMPLETED)
            if not lease.done() or drained.is_set():
                return None
            batch = lease.result()
        finally:
            for task in (lease, drain):
                task.cancel()
            await asyncio.gather(lease, drain, return_exceptions=True)
        self._arrivals.arrived(time.monotonic())
        if parse_id(IdKind.JOB, batch.header.job_id) != self._warm_process.job_id:
            raise BatchMismatch(f"batch {batch.header.number} belongs to job {batch.header.job_id}")
        return batch, time.monotonic() - started_s

    def _request(self, *, num_held: int) -> BatchLeaseRequest:
        """Return the request for the batch that follows the `num_held` batches in hand."""
        return BatchLeaseRequest(
            applied_batch=self._progress.batch_number,
            durable_batch=self._durable_batch,
            policy_version=self._progress.version + num_held,
            num_held=num_held,
        )

    def _ahead_lease(self, client: TrainerClient) -> None:
        """Request the batch after the present one, so that the gateway assembles it during the step."""
        if self._progress.batch_number + 1 < self._spec.train.num_updates:
            self._ahead = asyncio.create_task(client.batch_lease(self._request(num_held=1)))

    async def _ahead_forget(self) -> None:
        """Forget the batch requested ahead; the next trainer gets the same bytes."""
        if self._ahead is not None:
            self._ahead.cancel()
            await asyncio.gather(self._ahead, return_exceptions=True)
            self._ahead = None

    async def _apply(self, client: TrainerClient, batch: Batch, lease_wait_s: float) -> None:
        """Make one step, and write a checkpoint if it is due."""
        self._report(Doing(state=LedgerState.TRAINING))
        await self._checkpoint_finish(waits=False)
        self._ahead_lease(client)
        before = self._progress
        first_step = before.optimizer_step + 1
        self.is_stepping = True
        try:
            step = self._off_loop(
                lambda: self._engine.step(batch, step_version=before.version, optimizer_step=first_step)
            )
            metrics = await self._steps.wait(step)
        finally:
            self.is_stepping = False
        self._progress = Progress(
            batch_number=batch.header.number,
            version=before.version + 1,
            optimizer_step=before.optimizer_step + self._spec.train.num_steps_per_update,
            metrics={**_finite(metrics), "train/lease_wait_s": lease_wait_s},
        )
        self._checkpoint_uri = None
        logger.info("batch %d: %s", batch.header.number, _shown(metrics))
        if self._is_checkpoint_due():
            await self._checkpoint()
        if batch.header.number == self._spec.train.num_updates:
            await self._checkpoint_finish()  # with the last publication the job is over

    def _is_checkpoint_due(self) -> bool:
        number = self._progress.batch_number
        is_last = number == self._spec.train.num_updates
        return number > self._durable_batch and (
            is_last or number % self._spec.train.checkpoint_every_updates == 0
        )

    async def _save_before_leaving(self) -> None:
        """Save the progress, because this trainer may not come back and another one continues from here."""
        await self._checkpoint_finish()
        if self._progress.batch_number > self._durable_batch and not self.is_discarded:
            await self._checkpoint()

    async def _checkpoint(self) -> None:
        """Begin a checkpoint, once the one before is written."""
        self._report(Doing(state=LedgerState.SYNCING))
        started_s = time.monotonic()
        await self._checkpoint_finish()
        progress = self._progress
        number = progress.batch_number
        saving = await self._off_loop(
            lambda: checkpoint_begin(self._artifacts.checkpoints, self._engine, progress)
        )
        self._saving, self._checkpoint_uri = saving, self._artifacts.checkpoint_url(number)
        self._add_metric("train/checkpoint_s", time.monotonic() - started_s)

    async def _checkpoint_finish(self, *, waits: bool = True) -> None:
        """Complete the checkpoint that is being written; without `waits` only if it is written."""
        saving = self._saving
        if saving is not None and await self._off_loop(lambda: self._keep(saving, waits=waits)):
            self._saving, self._durable_batch = None, saving.progress.batch_number

    def _keep(self, saving: Saving, *, waits: bool) -> bool:
        if not checkpoint_finish(saving, self._engine, waits=waits):
            return False
        self._artifacts.checkpoint_keep(saving.progress.batch_number, num_kept=NUM_KEPT_CHECKPOINTS)
        return True

    async def _publish(self, client: TrainerClient, drained: asyncio.Event) -> bool:
        """Write the weights and announce them; return whether the job is complete."""
        self._report(Doing(state=LedgerState.SYNCING))
        started_s = time.monotonic()
        weights, url = await self._off_loop(self._write_weights)
        self._add_metric("train/publish_s", time.monotonic() - started_s)
        publication = Publication(
            version=self._progress.version,
            parent_version=self._published_version,
            optimizer_step=self._progress.optimizer_step,
            batch_number=self._progress.batch_number,
            uri=url,
            manifest_sha256=weights.manifest_sha256,
            num_bytes=weights.num_bytes,
            checkpoint_uri=self._checkpoint_uri,
            metrics=self._progress.metrics,
        )
        reply = await client.publication_announce(publication, may_retry=_until_drained(drained))
        self._published_version = publication.version
        return reply.is_job_complete

    def _write_weights(self) -> tuple[PublishedWeights, str]:
        shards = None if self._offers is None else self._offers.shards()
        weights = weights_publish(
            self._artifacts.versions,
            self._engine,
            job_id=self._warm_process.job_id,
            version=self._progress.version,
            parent_version=self._published_version,
            dtype=self._spec.model.dtype,
            adapter_config=self._engine.adapter_config,
            sealed=shards,
        )
        url = self._artifacts.version_keep(self._progress.version)
        if self._offers is not None and shards is not None:
            self._offers.offer(
                shards, version=self._progress.version, manifest_sha256=weights.manifest_sha256
            )
        return weights, url

    def _add_metric(self, name: str, value: float) -> None:
        progress = self._progress
        self._progress = Progress(
            batch_number=progress.batch_number,
            version=progress.version,
            optimizer_step=progress.optimizer_step,
            metrics={**progress.metrics, name: value},
        )

    async def _off_loop(self, work: Callable[[], _T]) -> _T:
        return await asyncio.get_running_loop().run_in_executor(self._executor, work)


def _finite(metrics: dict[str, float]) -> dict[str, float]:
    """Drop the values that neither a checkpoint nor a publication can contain: JSON cannot express them."""
    return {name: value for name, value in metrics.items() if math.isfinite(value)}


def _shown(metrics: dict[str, float]) -> str:
    names = ("reward/mean", "train/loss", "train/grad_norm", "train/num_trained_tokens", "train/step_s")
    return ", ".join(f"{name} {metrics[name]:.4g}" for name in names if name in metrics)


def _until_drained(drained: asyncio.Event) -> Callable[[], bool]:
    """Return a condition to retry for ever, but once drained only for DRAIN_GRACE_S more."""
    give_up_at_s: float | None = None

    def may_retry() -> bool:
        nonlocal give_up_at_s
        if not drained.is_set():
            return True
        if give_up_at_s is None:
            give_up_at_s = time.monotonic() + DRAIN_GRACE_S
        return time.monotonic() < give_up_at_s

    return may_retry
