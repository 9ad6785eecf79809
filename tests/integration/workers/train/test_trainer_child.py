"""The trainer process from outside: phases, crashes, fences. Real DeepSpeed; gateway and control plane stand in."""

import dataclasses
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import msgspec
import numpy as np
import pytest
from safetensors.numpy import load

from seamlessflow.control_plane.jobs.submission.continued_files import checkpoint_take, version_take
from seamlessflow.core.artifacts.store_paths import checkpoint_path, job_path, version_path
from seamlessflow.core.batching.format import Batch
from seamlessflow.core.protocol.child import (
    EXIT_INPUT_FAULT,
    INPUT_FAULT_MARK,
    Doing,
    Drain,
    Ended,
    Failed,
    FromChild,
    Ready,
    Renew,
)
from seamlessflow.core.protocol.worker import Publication
from seamlessflow.core.types.ledger import IdleCause, LedgerState
from seamlessflow.runtime.artifacts.opening import store_open
from seamlessflow_workers.weights.artifacts import JobArtifacts
from seamlessflow_workers.weights.manifest import MANIFEST_NAME, manifest_digest, manifest_read
from tests.fixtures.trainer_harness import (
    DEADLINE_S,
    JOB,
    Planes,
    PublicationLost,
    TrainerProcess,
    folder_with,
    make_batch,
    make_spec,
)

NUM_UPDATES = 6
FLAT_BATCH = 2  # nothing to train in it
FLAT_BATCHES = frozenset({FLAT_BATCH})
CHECKPOINT_EVERY = 4
SPEC = make_spec(num_updates=NUM_UPDATES, checkpoint_every_updates=CHECKPOINT_EVERY)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture
def folder(tmp_path: Path, trainer_model: Path) -> Path:
    return folder_with(trainer_model, tmp_path)


class FinishedRun:
    """A job that ran through without disturbance."""

    def __init__(self, folder: Path, planes: Planes) -> None:
        self.folder, self.planes = folder, planes
        trainer = TrainerProcess(folder, self.planes, SPEC, is_forked=False)
        try:
            trainer.receive_until(Ready)
            trainer.begin(1)
            self.ended, self.reports = trainer.receive_until(Ended)
        finally:
            trainer.kill()


@pytest.fixture(scope="module")
def finished(
    tmp_path_factory: pytest.TempPathFactory, trainer_model: Path, start_planes: Callable[..., Planes]
) -> FinishedRun:
    folder = folder_with(trainer_model, tmp_path_factory.mktemp("finished"))
    return FinishedRun(folder, start_planes(num_updates=NUM_UPDATES, flat_batches=FLAT_BATCHES))


@pytest.fixture
def planes(start_planes: Callable[..., Planes]) -> Planes:
    return start_planes(num_updates=NUM_UPDATES, flat_batches=FLAT_BATCHES)


def versions_of(folder: Path) -> Path:
    return JobArtifacts((folder / "artifacts").as_uri(), JOB).versions


def weights_digests(folder: Path, version: int) -> dict[str, str]:
    manifest = manifest_read(versions_of(folder) / str(version))
    return {name: entry.sha256 for name, entry in manifest.shards.items()}


def states(reports: list[FromChild]) -> list[str]:
    return [report.cause or report.state for report in reports if isinstance(report, Doing)]


def test_each_batch_makes_one_version_until_the_job_is_complete(finished: FinishedRun) -> None:
    publications = finished.planes.publications
    assert finished.ended.reason == "the job has all its updates"
    assert list(publications) == list(range(1, NUM_UPDATES + 1))
    for version, publication in publications.items():
        assert publication.parent_version == version - 1
        assert publication.batch_number == publication.optimizer_step == version
        is_checkpointed = version in (CHECKPOINT_EVERY, NUM_UPDATES)
        assert (publication.checkpoint_uri is not None) == is_checkpointed
    # Each but the first was asked for during the step before; the checkpoint of batch 4 may be unfinished then.
    assert [lease.durable_batch for lease in finished.planes.leases][:-1] == [0, 0, 0, 0, 0]
    assert finished.planes.leases[-1].durable_batch in (0, 4)


def test_ledger_states_follow_the_work(finished: FinishedRun) -> None:
    step = [LedgerState.TRAINING, LedgerState.SYNCING]
    checkpointed = [*step, LedgerState.SYNCING]
    first, *later = states(finished.reports)
    assert first is IdleCause.NO_BATCH  # the others were leased during the step before
    work = [state for state in later if state is not IdleCause.NO_BATCH]
    assert work == [*step * 3, *checkpointed, *step, *checkpointed]


def test_published_weights_verify_and_always_hold_the_output_head(finished: FinishedRun) -> None:
    folder = versions_of(finished.folder) / str(NUM_UPDATES)
    manifest = manifest_read(folder)
    tensors = {
        name: tensor
        for shard in manifest.shards
        for name, tensor in load((folder / shard).read_bytes()).items()
    }
    assert tensors.keys() == manifest.tensors.keys()
    assert (tensors["lm_head.weight"] == tensors["model.embed_tokens.weight"]).all()
    assert tensors["model.layers.0.self_attn.q_proj.weight"].shape == (32, 32)


def test_batch_with_nothing_to_train_takes_a_number_and_leaves_the_weights(finished: FinishedRun) -> None:
    digests = {version: weights_digests(finished.folder, version) for version in (1, 2, 3)}
    assert digests[FLAT_BATCH] == digests[FLAT_BATCH - 1] != digests[FLAT_BATCH + 1]
    publications = finished.planes.publications
    rates = [publications[version].metrics["train/learning_rate"] for version in range(1, NUM_UPDATES + 1)]
    assert rates == pytest.approx([0.0025, 0.005, 0.0075, 0.01, 0.01, 0.01])
    assert "train/grad_norm" not in publications[FLAT_BATCH].metrics


def test_batch_with_nothing_to_train_still_shows_whether_trainer_and_engine_agree(
    finished: FinishedRun,
) -> None:
    metrics = finished.planes.publications[FLAT_BATCH].metrics
    assert metrics["train/mismatch_max"] > 0.1  # made-up logprobs, far from the model's
    assert metrics["train/ratio_max"] > 0  # the other statistics are over its tokens as well


def test_metrics_of_a_step_are_complete(finished: FinishedRun) -> None:
    metrics = finished.planes.publications[NUM_UPDATES].metrics
    expected = (
        "loss grad_norm entropy kl_behaviour clip_fraction_low clip_fraction_high mismatch_max mismatch_mean ess "
        "ratio_mean ratio_max staleness_mean staleness_max num_tokens num_trained_tokens step_s lease_wait_s "
        "publish_s checkpoint_s learning_rate"
    )
    assert {f"train/{name}" for name in expected.split()} | {"reward/mean", "reward/std"} <= metrics.keys()
    assert metrics["train/staleness_max"] == 0
    assert metrics["train/num_trained_tokens"] < metrics["train/num_tokens"]


def test_killed_anywhere_each_batch_is_in_the_weights_exactly_once(
    folder: Path, planes: Planes, finished: FinishedRun
) -> None:
    """Kill -9 before version 3 is recorded (no checkpoint yet), before 4 (its checkpoint is written), after 5."""
    trainer: TrainerProcess
    kills_left = {3, 4, 5}

    def kill_before_recorded(publication: Publication) -> None:
        if publication.version in kills_left & {3, 4}:
            kills_left.remove(publication.version)
            trainer.process.kill()
            raise PublicationLost

    def kill_after_recorded(publication: Publication) -> None:
        if publication.version in kills_left & {5}:
            kills_left.remove(publication.version)
            trainer.process.kill()

    planes.before_publication = kill_before_recorded
    planes.after_publication = kill_after_recorded
    for phase in (1, 2, 3):
        trainer = TrainerProcess(folder, planes, SPEC)
        trainer.receive_until(Ready)
        trainer.begin(phase)
        assert trainer.process.wait(DEADLINE_S) == -signal.SIGKILL
        trainer.close()
    trainer = TrainerProcess(folder, planes, SPEC)
    trainer.receive_until(Ready)
    trainer.begin(4)
    trainer.receive_until(Ended)
    trainer.kill()
    assert not kills_left
    assert planes.conflicts == []
    assert [publication.batch_number for publication in planes.publications.values()] == [1, 2, 3, 4, 5, 6]
    for version in range(1, NUM_UPDATES + 1):
        assert weights_digests(folder, version) == weights_digests(finished.folder, version)
    assert planes.publications[4].checkpoint_uri is not None
    assert "train/loss" in planes.publications[4].metrics


def test_killed_at_any_moment_each_batch_is_in_the_weights_exactly_once(
    folder: Path, planes: Planes, finished: FinishedRun
) -> None:
    """Kill -9 wherever it is, some way into each batch: in the step, the save, the files or the announcement."""
    rng = np.random.default_rng(int.from_bytes(os.urandom(4)))
    spec = make_spec(num_updates=NUM_UPDATES, checkpoint_every_updates=1)
    for phase in range(1, NUM_UPDATES):
        trainer = TrainerProcess(folder, planes, spec)
        trainer.receive_until(Ready)
        planes.num_batches_ready = max(planes.latest_version + 1, phase)
        trainer.begin(phase)
        trainer.receive_until(Doing)
        time.sleep(rng.uniform(0, 0.15))  # a step with its files takes about a tenth of a second
        trainer.kill()
    planes.num_batches_ready = NUM_UPDATES
    trainer = TrainerProcess(folder, planes, spec)
    trainer.receive_until(Ready)
    trainer.begin(NUM_UPDATES)
    trainer.receive_until(Ended)
    trainer.kill()
    assert planes.conflicts == []
    assert [publication.batch_number for publication in planes.publications.values()] == [1, 2, 3, 4, 5, 6]
    for version in range(1, NUM_UPDATES + 1):
        assert weights_digests(folder, version) == weights_digests(finished.folder, version)


def test_trainer_outlives_its_phases_and_a_drain_cuts_waiting_short(folder: Path, planes: Planes) -> None:
    planes.num_batches_ready = 2
    planes.num_answers_lost = 3  # both planes may restart at any time
    trainer = TrainerProcess(folder, planes, SPEC)
    trainer.receive_until(Ready)
    trainer.begin(1, num_batches=2)
    ended, _ = trainer.receive_until(Ended)
    assert (ended.reason, planes.latest_version) == ("2 batches trained", 2)
    planes.num_batches_ready = 3
    phase_id = trainer.begin(2)
    while planes.latest_version < 3:
        trainer.receive_until(Doing)
    assert [lease.number for lease in planes.leases] == [1, 2, 3, 3, 4]
    started = time.monotonic()
    trainer.send(Drain(phase_id=phase_id))
    ended, _ = trainer.receive_until(Ended)
    assert ended == Ended(phase_id=phase_id, reason="drained", kept_bytes=0)
    assert time.monotonic() - started < 8.0  # the long poll takes 10
    saved = folder / "artifacts" / str(JOB) / "checkpoints" / "batch-3"
    assert saved.is_dir(), "who trains next goes on from here"
    planes.is_fenced_off = True
    planes.num_batches_ready = 4
    phase_id = trainer.begin(3)
    failed, _ = trainer.receive_until(Failed)
    assert failed == Failed(phase_id=phase_id, reason="phase with fence 7 took over")
    assert trainer.receive() is None
    assert trainer.process.wait(DEADLINE_S) != 0
    trainer.close()


def test_cancelled_step_is_given_up_and_leaves_nothing_half_made(folder: Path, planes: Planes) -> None:
    planes.num_batches_ready = 1
    trainer = TrainerProcess(folder, planes, SPEC)
    trainer.receive_until(Ready)
    phase_id = trainer.begin(1)
    while trainer.receive_until(Doing)[0].state is not LedgerState.TRAINING:
        continue
    # The first step takes longer than a message: torch sets itself up in it.
    trainer.send(Drain(phase_id=phase_id, grace_s=0.0))
    ended, _ = trainer.receive_until(Ended)
    assert ended.reason == "the running step was given up, because its job is cancelled"
    assert trainer.receive() is None
    assert trainer.process.wait(DEADLINE_S) == 0
    trainer.close()
    assert planes.publications == {}
    assert not [path for path in (folder / "artifacts").rglob("*") if path.is_file()]


def test_renewed_credential_is_presented_from_then_on(folder: Path, planes: Planes) -> None:
    planes.num_batches_ready = 0
    trainer = TrainerProcess(folder, planes, SPEC)
    trainer.receive_until(Ready)
    phase_id = trainer.begin(1)
    while not planes.leases:
        time.sleep(0.01)  # the lease that waits was asked for under the old one
    trainer.send(Renew(phase_id=phase_id, credential="sfp_fresh"))
    planes.credential = "sfp_fresh"
    planes.num_batches_ready = 1
    while planes.latest_version < 1:
        trainer.receive_until(Doing)
    trainer.send(Drain(phase_id=phase_id))
    ended, _ = trainer.receive_until(Ended)
    trainer.kill()
    assert (ended.reason, planes.latest_version) == ("drained", 1)


def test_batch_that_is_there_already_is_trained_in_the_same_turn(folder: Path, planes: Planes) -> None:
    planes.num_batches_ready = 3
    trainer = TrainerProcess(folder, planes, SPEC)
    trainer.receive_until(Ready)
    trainer.begin(1, num_batches=1)
    ended, _ = trainer.receive_until(Ended)
    trainer.kill()
    assert (ended.reason, planes.latest_version) == ("3 batches trained", 3)
    asked = [(lease.applied_batch, lease.num_held, lease.policy_version) for lease in planes.leases]
    assert asked == [(0, 0, 0), (0, 1, 1), (1, 1, 2), (2, 1, 3)]


def test_trainer_that_was_overtaken_by_another_machine_catches_up(
    folder: Path, planes: Planes, finished: FinishedRun
) -> None:
    first, second = (TrainerProcess(folder, planes, SPEC) for _ in range(2))
    for trainer, phase, num_batches, num_ready in ((first, 1, 2, 2), (second, 2, 3, 5), (first, 3, None, 6)):
        planes.num_batches_ready = num_ready
        if phase < 3:
            trainer.receive_until(Ready)
        trainer.begin(phase, num_batches=num_batches)
        trainer.receive_until(Ended)
    first.kill()
    second.kill()
    assert planes.conflicts == []
    # The second begins with nothing in memory; the first skips to the checkpoint behind batch 4.
    assert [lease.number for lease in planes.leases] == [1, 2, 3, 1, 2, 3, 4, 5, 6, 5, 6]
    assert weights_digests(folder, NUM_UPDATES) == weights_digests(finished.folder, NUM_UPDATES)


def test_a_job_that_continues_another_goes_on_with_its_optimizer(
    folder: Path, planes: Planes, finished: FinishedRun
) -> None:
    """Its first batches are the other one's fifth and sixth: the weights must be the same, bit for bit."""
    store, older = store_open((folder / "artifacts").as_uri()), UUID(int=99)
    shutil.copytree(finished.folder / "artifacts" / str(JOB), store.workspace(job_path(older)))
    store_path, digest = version_take(store, version_path(older, CHECKPOINT_EVERY), JOB)
    checkpoint_take(store, checkpoint_path(older, CHECKPOINT_EVERY), JOB)
    weights = store.workspace(store_path)
    assert manifest_digest((weights / MANIFEST_NAME).read_bytes()) == digest
    assert manifest_read(weights).version == 1
    spec = make_spec(num_updates=2, checkpoint_every_updates=CHECKPOINT_EVERY)
    planes.publications[1] = finished.planes.publications[CHECKPOINT_EVERY]
    planes.num_updates = 3  # versions
    planes.change = lambda batch: numbered(make_batch(batch.header.number + CHECKPOINT_EVERY), batch)

    trainer = TrainerProcess(folder, planes, spec)
    trainer.receive_until(Ready)
    trainer.begin(1)
    trainer.receive_until(Ended)
    trainer.kill()

    made = [planes.publications[version] for version in (2, 3)]
    assert [(one.batch_number, one.optimizer_step) for one in made] == [(1, 5), (2, 6)]
    assert planes.conflicts == []
    for own, others in ((2, 5), (3, 6)):
        assert weights_digests(folder, own) == weights_digests(finished.folder, others)
    assert weights_digests(folder, 1) != weights_digests(folder, 2)


def numbered(batch: Batch, like: Batch) -> Batch:
    """Return a batch under another number, as if the versions before it had sampled it."""
    by = batch.header.number - 1 - like.header.number  # the job began with a version of its own
    header = msgspec.structs.replace(batch.header, number=like.header.number)
    versions = np.where(batch.versions >= 0, batch.versions - by, batch.versions)
    return dataclasses.replace(batch, header=header, versions=versions.astype(np.int32))


def test_trainer_ends_with_its_control_socket(folder: Path, planes: Planes) -> None:
    planes.num_batches_ready = 0
    trainer = TrainerProcess(folder, planes, SPEC)
    trainer.receive_until(Ready)
    trainer.begin(1)
    trainer.receive_until(Doing)
    trainer.close()
    assert trainer.process.returncode == 0


SMALL_DISK = 'mount -t tmpfs -o size=48k none "$0" && exec "$@"'


@pytest.mark.parametrize(
    "num_updates,subject", [(1, "checkpoint of batch 1"), (NUM_UPDATES, "weights of version 1")]
)
def test_full_disk_fails_the_phase_with_one_clear_sentence(
    folder: Path, planes: Planes, num_updates: int, subject: str
) -> None:
    """The checkpoint of the last update is complete before its weights are written."""
    unshare = ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--map-root-user", "--mount"]
    if shutil.which("unshare") is None or subprocess.run([*unshare, "true"], check=False).returncode != 0:
        pytest.skip("mount namespaces are not allowed here")
    (folder / "artifacts").mkdir()
    spec = make_spec(num_updates=num_updates, checkpoint_every_updates=CHECKPOINT_EVERY)
    prefix = [*unshare, "sh", "-c", SMALL_DISK, str(folder / "artifacts")]
    trainer = TrainerProcess(folder, planes, spec, prefix=prefix)
    trainer.receive_until(Ready)
    trainer.begin(1)
    failed, _ = trainer.receive_until(Failed)
    trainer.close()
    assert failed.reason.startswith(f"cannot write {subject}")
    assert failed.reason.endswith("free space or change ARTIFACT_ROOT")
    assert planes.publications == {}


def test_missing_model_is_one_clear_sentence(tmp_path: Path, planes: Planes) -> None:
    trainer = TrainerProcess(tmp_path, planes, SPEC)
    assert trainer.receive() is None
    trainer.close()
    log = (tmp_path / "trainer.log").read_text()
    assert f"No such file or directory: '{tmp_path / 'model' / 'config.json'}" in log
    assert "Traceback" not in log


def test_weights_that_are_damaged_after_submission_are_reported_as_a_fault_of_the_input(
    tmp_path: Path, trainer_model: Path, planes: Planes
) -> None:
    weights = Path(shutil.copytree(trainer_model, tmp_path / "model")) / "model.safetensors"
    os.truncate(weights, weights.stat().st_size - 4)
    trainer = TrainerProcess(tmp_path, planes, SPEC)
    try:
        code = trainer.process.wait(DEADLINE_S)
    finally:
        trainer.kill()
    assert code == EXIT_INPUT_FAULT
    last = (tmp_path / "trainer.log").read_text().splitlines()[-1]
    assert last.startswith(INPUT_FAULT_MARK)
    assert "model.safetensors cannot be read as safetensors: its tensors end at byte" in last
