"""Trainers of two machines as one, from outside: one's loss curve, phases in turn, and a kill -9 of either."""

import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from seamlessflow.core.protocol.child import Begun, Doing, Drain, Ended, Failed, FromChild, Ready
from seamlessflow.core.protocol.worker import GangOrder, Publication
from seamlessflow.core.types.ledger import IdleCause, LedgerState
from seamlessflow_workers.process.rendezvous import Rendezvous
from seamlessflow_workers.weights.artifacts import JobArtifacts
from seamlessflow_workers.weights.manifest import manifest_read
from tests.fixtures.trainer_harness import (
    DEADLINE_S,
    JOB,
    RECORDED,
    Planes,
    PublicationLost,
    TrainerProcess,
    as_recorded,
    make_model,
    make_spec,
)

NUM_UPDATES = 6
CHECKPOINT_EVERY = 4
METRICS = ("train/loss", "train/grad_norm", "train/entropy", "train/ess", "train/num_trained_tokens")
MACHINES = ["alpha", "beta"]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

Sequence = dict[int, Publication]


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    make_model(folder / "model")
    return folder / "model"


@pytest.fixture(scope="module")
def planes() -> Iterator[Callable[[], Planes]]:
    started: list[Planes] = []

    def start() -> Planes:
        planes = Planes(num_updates=NUM_UPDATES)
        planes.start()
        started.append(planes)
        return planes

    yield start
    for planes in started:
        planes.stop()


@dataclass
class Gang:
    """A trainer on each of two machines, which differ by nothing but their sockets."""

    folder: Path
    planes: Planes
    zero_stage: int
    num_ranks: int = 1
    hides_artifacts: bool = False  # from the follower
    changes: dict[str, Any] = field(
        default_factory=dict
    )  # of the spec; those under `train` are added to its own
    trainers: list[TrainerProcess] = field(default_factory=list)

    def start(self, model: Path) -> None:
        spec = gang_spec(self)
        self.meeting = Rendezvous.open(listen_host="127.0.0.1", advertised_host="127.0.0.1")
        for name in MACHINES:
            self.folder.mkdir(exist_ok=True, parents=True)
            if not (self.folder / "model").exists():
                (self.folder / "model").symlink_to(model)
            self.trainers.append(
                TrainerProcess(
                    self.folder,
                    self.planes,
                    spec,
                    listening=self.meeting.listening,
                    prefix=hidden(self.folder) if self.hides_artifacts and name == MACHINES[1] else (),
                )
            )
        for trainer in self.trainers:
            trainer.receive_until(Ready)

    @property
    def leader(self) -> TrainerProcess:
        return self.trainers[0]

    @property
    def follower(self) -> TrainerProcess:
        return self.trainers[1]

    def order(
        self, phase: int, member: int, *, secret: str = "between us", num_machines: int = len(MACHINES)
    ) -> GangOrder:
        return GangOrder(
            gang_id=UUID(int=phase),
            member=member,
            machines=MACHINES[:num_machines],
            address=self.meeting.address,
            secret=secret,
        )

    def begin(self, phase: int, *, num_batches: int | None = None) -> UUID:
        for member, trainer in enumerate(self.trainers):
            trainer.begin(phase, num_batches=num_batches, gang=self.order(phase, member))
        return UUID(int=phase)

    def until_ended(self) -> list[list[FromChild]]:
        """What each said before."""
        return [trainer.receive_until(Ended)[1] for trainer in self.trainers]

    def kill(self) -> None:
        for trainer in self.trainers:
            trainer.kill()
        self.meeting.close()


def hidden(folder: Path) -> list[str]:
    """A command that becomes another one, for which the artifacts are an empty folder."""
    unshare = ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--map-root-user", "--mount"]
    if shutil.which("unshare") is None or subprocess.run([*unshare, "true"], check=False).returncode != 0:
        pytest.skip("mount namespaces are not allowed here")
    (folder / "artifacts").mkdir(parents=True, exist_ok=True)
    return [*unshare, "sh", "-c", 'mount -t tmpfs none "$0" && exec "$@"', str(folder / "artifacts")]


def gang_spec(gang: Gang) -> dict[str, object]:
    own = {"zero_stage": gang.zero_stage, "num_ranks": gang.num_ranks, "num_machines": len(MACHINES)}
    return spec_with(gang.changes, **own)


def spec_with(changes: dict[str, Any], **train: Any) -> dict[str, object]:
    own = {"num_updates": NUM_UPDATES, "checkpoint_every_updates": CHECKPOINT_EVERY, **train}
    return {
        **make_spec(**{**own, **changes.get("train", {})}),
        **{k: changes[k] for k in changes.keys() - {"train"}},
    }


def run_alone(folder: Path, model: Path, planes: Planes, changes: dict[str, Any] | None = None) -> Sequence:
    folder.mkdir()
    (folder / "model").symlink_to(model)
    spec = spec_with(changes or {}, zero_stage=1)
    TrainerProcess(folder, planes, spec).run_phase()
    return planes.publications


def run_together(gang: Gang, model: Path) -> Sequence:
    gang.start(model)
    try:
        gang.begin(1)
        gang.until_ended()
    finally:
        gang.kill()
    return gang.planes.publications


def digests(folder: Path, version: int) -> dict[str, str]:
    manifest = manifest_read(JobArtifacts((folder / "artifacts").as_uri(), JOB).versions / str(version))
    return {name: shard.sha256 for name, shard in manifest.shards.items()}


@pytest.fixture(scope="module")
def alone(
    tmp_path_factory: pytest.TempPathFactory, model_folder: Path, planes: Callable[[], Planes]
) -> Sequence:
    return run_alone(tmp_path_factory.mktemp("alone") / "run", model_folder, planes())


@pytest.fixture(scope="module")
def together(
    tmp_path_factory: pytest.TempPathFactory, model_folder: Path, planes: Callable[[], Planes]
) -> dict[int, tuple[Path, Sequence]]:
    """Folder and publications of an undisturbed run of two machines, by ZeRO stage."""
    runs = {}
    for stage in (1, 2, 3):
        folder = tmp_path_factory.mktemp("together") / str(stage)
        runs[stage] = folder, run_together(Gang(folder, planes(), stage), model_folder)
    return runs


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_two_machines_give_the_loss_curve_of_one(
    alone: Sequence, together: dict[int, tuple[Path, Sequence]], stage: int
) -> None:
    """Sums of float32 in another order: within 1e-4 after six steps of a learning rate of 0.01."""
    _, publications = together[stage]
    assert list(publications) == list(alone) == list(range(1, NUM_UPDATES + 1))
    for name in METRICS:
        curve = [publication.metrics[name] for publication in publications.values()]
        assert curve == pytest.approx([publication.metrics[name] for publication in alone.values()], rel=1e-4)


def test_two_machines_with_two_processes_each_train_as_four(
    tmp_path: Path, model_folder: Path, planes: Callable[[], Planes], alone: Sequence
) -> None:
    publications = run_together(Gang(tmp_path / "run", planes(), 2, num_ranks=2), model_folder)
    for name in METRICS:
        curve = [publication.metrics[name] for publication in publications.values()]
        assert curve == pytest.approx([publication.metrics[name] for publication in alone.values()], rel=1e-4)


def test_a_gang_trains_an_adapter_on_recorded_trajectories_as_one_machine_does(
    tmp_path: Path, model_folder: Path, planes: Callable[[], Planes]
) -> None:
    changes = {**RECORDED, "train": {"lora": {"rank": 3, "alpha": 12.0}, "tree": False}}
    both = [planes(), planes()]
    for one in both:
        one.change = as_recorded
    one_machine = run_alone(tmp_path / "alone", model_folder, both[0], changes)
    publications = run_together(Gang(tmp_path / "run", both[1], 2, changes=changes), model_folder)
    assert list(publications) == list(one_machine) == list(range(1, NUM_UPDATES + 1))
    for version, publication in publications.items():
        ours, theirs = publication.metrics, one_machine[version].metrics
        assert ours.keys() == theirs.keys()
        for name in ("train/loss", "train/grad_norm", "train/entropy"):
            assert ours[name] == pytest.approx(theirs[name], rel=1e-4)


@pytest.mark.parametrize("stage", [1, 3])
def test_a_gang_that_shrinks_goes_on_behind_its_checkpoint_and_repeats_no_batch(
    tmp_path: Path, model_folder: Path, planes: Callable[[], Planes], alone: Sequence, stage: int
) -> None:
    bounds = {"train": {"num_machines": {"min": 1, "max": 2}}}
    both = Gang(tmp_path / "run", planes(), stage, changes=bounds)
    both.planes.num_batches_ready = 3
    both.start(model_folder)
    try:
        for member, trainer in enumerate(both.trainers):
            trainer.begin(1, num_batches=3, gang=both.order(1, member), leaves_checkpoint=True)
        both.until_ended()
    finally:
        both.kill()
    assert len(both.planes.publications) == 3
    both.planes.num_batches_ready = NUM_UPDATES
    one = Gang(tmp_path / "run", both.planes, stage, changes=bounds)
    one.start(model_folder)
    try:
        one.leader.begin(2, gang=one.order(2, 0, num_machines=1))
        one.leader.receive_until(Ended)
    finally:
        one.kill()
    assert list(both.planes.publications) == list(alone) == list(range(1, NUM_UPDATES + 1))
    applied = [lease.applied_batch for lease in both.planes.leases]
    assert applied == sorted(applied), "no batch was applied again"
    for name in METRICS:
        curve = [publication.metrics[name] for publication in both.planes.publications.values()]
        assert curve == pytest.approx([publication.metrics[name] for publication in alone.values()], rel=1e-4)


def is_hung_up(stranger: socket.socket) -> bool:
    try:
        return stranger.recv(1) == b""
    except ConnectionResetError:
        return True


def words(said: list[FromChild]) -> list[tuple[LedgerState, IdleCause | None]]:
    return [(message.state, message.cause) for message in said if isinstance(message, Doing)]


def test_the_same_processes_train_phase_after_phase_and_say_what_they_do(
    tmp_path: Path, model_folder: Path, planes: Callable[[], Planes]
) -> None:
    gang = Gang(tmp_path / "run", planes(), 3)
    gang.start(model_folder)
    try:
        for phase in (1, 2, 3):
            gang.planes.num_batches_ready = 2 * phase
            gang.begin(phase, num_batches=2)
            leader, follower = gang.until_ended()
            for said in (leader, follower):
                assert sum(isinstance(message, Begun) for message in said) == 1
                assert words(said)[0] == (LedgerState.IDLE, IdleCause.AWAITING_GANG)
                assert (LedgerState.TRAINING, None) in words(said)
                assert ((LedgerState.STARTING, None) in words(said)) == (phase == 1)
            assert (LedgerState.SYNCING, None) in words(follower), "it gives its part of the weights"
    finally:
        gang.kill()
    assert list(gang.planes.publications) == list(range(1, NUM_UPDATES + 1))
    assert gang.planes.conflicts == []


@pytest.mark.parametrize("stage", [2, 3])
def test_whichever_machine_is_killed_the_weights_are_the_same_to_the_bit(
    tmp_path: Path,
    model_folder: Path,
    planes: Callable[[], Planes],
    together: dict[int, tuple[Path, Sequence]],
    stage: int,
) -> None:
    """The leader before version 3 is recorded (no checkpoint yet), the follower after version 5 is (one of batch 4)."""
    folder, own_planes = tmp_path / "run", planes()
    gang = Gang(folder, own_planes, stage)
    gang.start(model_folder)

    def kill_leader(publication: Publication) -> None:
        if publication.version == 3:
            gang.leader.process.kill()
            raise PublicationLost

    own_planes.before_publication = kill_leader
    gang.begin(1)
    assert gang.leader.process.wait(DEADLINE_S) == -signal.SIGKILL
    failed, _ = gang.follower.receive_until(Failed)
    assert "alpha, which leads this machine, is gone" in failed.reason
    assert gang.follower.process.wait(DEADLINE_S) != 0
    gang.kill()

    gang = Gang(folder, own_planes, stage)
    gang.start(model_folder)
    own_planes.before_publication = lambda _publication: None
    own_planes.num_batches_ready = 5
    gang.begin(2)
    while own_planes.latest_version < 5:
        gang.leader.receive()
    gang.follower.process.kill()
    own_planes.num_batches_ready = NUM_UPDATES
    failed, _ = gang.leader.receive_until(Failed)
    assert failed.reason == "the trainer of beta, which trains with this one, is gone"
    gang.kill()

    run_together(Gang(folder, own_planes, stage), model_folder)
    assert own_planes.conflicts == []
    assert list(own_planes.publications) == list(range(1, NUM_UPDATES + 1))
    undisturbed, _ = together[stage]
    for version in range(1, NUM_UPDATES + 1):
        assert digests(folder, version) == digests(undisturbed, version)


def test_who_does_not_know_the_secret_is_sent_away_and_the_gang_goes_on_without_it(
    tmp_path: Path, model_folder: Path, planes: Callable[[], Planes]
) -> None:
    gang = Gang(tmp_path / "run", planes(), 1)
    gang.start(model_folder)
    gang.planes.num_batches_ready = 1
    try:
        gang.leader.begin(1, num_batches=1, gang=gang.order(1, 0))
        host, _, port = gang.meeting.address.rpartition(":")
        with socket.create_connection((host, int(port))) as stranger:
            stranger.settimeout(DEADLINE_S)
            stranger.sendall(b"GET / HTTP/1.1\r\n\r\n")
            assert is_hung_up(stranger), "it speaks no frames"
        gang.follower.begin(1, gang=gang.order(1, 1, secret="guessed"))
        failed, _ = gang.follower.receive_until(Failed)
        assert "does not know the gang's secret" in failed.reason
        gang.follower.kill()

        gang.trainers[1] = TrainerProcess(
            gang.folder, gang.planes, gang_spec(gang), listening=gang.meeting.listening
        )
        gang.follower.receive_until(Ready)
        gang.follower.begin(1, gang=gang.order(1, 1))
        gang.until_ended()
    finally:
        gang.kill()
    assert gang.planes.latest_version == 1


def test_drained_before_the_other_came_it_ends_and_may_begin_again(
    tmp_path: Path, model_folder: Path, planes: Callable[[], Planes]
) -> None:
    gang = Gang(tmp_path / "run", planes(), 1)
    gang.start(model_folder)
    try:
        for phase, trainer in enumerate(gang.trainers, 1):
            phase_id = trainer.begin(phase, gang=gang.order(phase, phase - 1))
            trainer.receive_until(Doing)
            trainer.send(Drain(phase_id=phase_id))
            ended, _ = trainer.receive_until(Ended)
            assert ended.reason.startswith("drained before")
        gang.planes.num_batches_ready = 1
        gang.begin(3, num_batches=1)
        gang.until_ended()
    finally:
        gang.kill()
    assert gang.planes.latest_version == 1


def test_a_machine_that_sees_other_artifacts_is_refused_in_words(
    tmp_path: Path, model_folder: Path, planes: Callable[[], Planes]
) -> None:
    gang = Gang(tmp_path / "run", planes(), 1, hides_artifacts=True)
    gang.start(model_folder)
    try:
        gang.begin(1)
        for trainer in gang.trainers:
            failed, _ = trainer.receive_until(Failed)
            assert (
                "must be the same folder on all machines that train together (ARTIFACT_ROOT)" in failed.reason
            )
    finally:
        gang.kill()
