"""Several processes that train together, from outside: one's loss curve, and a kill -9 of any of them."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from seamlessflow.core.protocol.child import Ended, Failed, Ready
from seamlessflow.core.protocol.worker import Publication
from seamlessflow.core.types.devices import Device
from seamlessflow.core.types.tags import Role
from seamlessflow_workers.weights.artifacts import JobArtifacts
from seamlessflow_workers.weights.manifest import manifest_read
from tests.fakes.fake_control_plane import TOKEN, FakeControlPlane, until
from tests.fixtures.machine_devices import core_device
from tests.fixtures.repository import ROOT
from tests.fixtures.trainer_harness import (
    DEADLINE_S,
    JOB,
    RECORDED,
    Planes,
    PublicationLost,
    TrainerProcess,
    as_it_is,
    as_recorded,
    folder_with,
    make_spec,
    run_check,
)

NUM_UPDATES = 6
CHECKPOINT_EVERY = 4
METRICS = ("train/loss", "train/grad_norm", "train/entropy", "train/ess", "train/num_trained_tokens")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

Sequence = dict[int, Publication]
Devices = tuple[Device, ...]


def start_trainer(
    folder: Path,
    planes: Planes,
    *,
    zero_stage: int,
    num_ranks: int | str,
    devices: Devices = (),
    **changes: Any,
) -> TrainerProcess:
    """`changes`: of the spec; those under `train` are added to its own."""
    train = {"num_updates": NUM_UPDATES, "checkpoint_every_updates": CHECKPOINT_EVERY}
    own = make_spec(**train, zero_stage=zero_stage, num_ranks=num_ranks, **changes.pop("train", {}))
    spec = {**own, **changes}
    trainer = TrainerProcess(folder, planes, spec, devices=devices)
    trainer.receive_until(Ready)
    return trainer


def run_through(
    folder: Path,
    planes: Planes,
    *,
    zero_stage: int,
    num_ranks: int | str,
    devices: Devices = (),
    **changes: Any,
) -> Sequence:
    trainer = start_trainer(
        folder, planes, zero_stage=zero_stage, num_ranks=num_ranks, devices=devices, **changes
    )
    try:
        if devices:
            assert cores_of_ranks(trainer) == [set(device.cores) for device in devices]
        trainer.begin(1)
        trainer.receive_until(Ended)
    finally:
        trainer.kill()
    return planes.publications


def digests(folder: Path, version: int) -> dict[str, str]:
    manifest = manifest_read(JobArtifacts((folder / "artifacts").as_uri(), JOB).versions / str(version))
    return {name: shard.sha256 for name, shard in manifest.shards.items()}


def cores_of_ranks(trainer: TrainerProcess) -> list[set[int]]:
    """Return the cores that every thread of each rank may run on."""
    ranks = [psutil.Process(trainer.process.pid), other_rank(trainer)]
    threads = [[os.sched_getaffinity(thread.id) for thread in rank.threads()] for rank in ranks]
    assert all(cores == each[0] for each in threads for cores in each)
    return [each[0] for each in threads]


def other_rank(trainer: TrainerProcess) -> psutil.Process:
    (other,) = psutil.Process(trainer.process.pid).children()
    return other


@pytest.fixture(scope="module")
def alone(
    tmp_path_factory: pytest.TempPathFactory, trainer_model: Path, start_planes: Callable[..., Planes]
) -> Sequence:
    folder = folder_with(trainer_model, tmp_path_factory.mktemp("alone") / "run")
    return run_through(folder, start_planes(num_updates=NUM_UPDATES), zero_stage=1, num_ranks=1)


@pytest.fixture(scope="module")
def together(
    tmp_path_factory: pytest.TempPathFactory, trainer_model: Path, start_planes: Callable[..., Planes]
) -> dict[int, tuple[Path, Sequence]]:
    """Folder and publications of an undisturbed run of two ranks, one on each of two devices, by ZeRO stage."""
    folders = {
        stage: folder_with(trainer_model, tmp_path_factory.mktemp("together") / str(stage))
        for stage in (1, 2, 3)
    }
    cores = sorted(os.sched_getaffinity(0))
    devices = (core_device(cores[0]), core_device(cores[-1]))
    return {
        stage: (
            folder,
            run_through(
                folder,
                start_planes(num_updates=NUM_UPDATES),
                zero_stage=stage,
                num_ranks="auto",
                devices=devices,
            ),
        )
        for stage, folder in folders.items()
    }


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_two_ranks_give_the_loss_curve_of_one(
    alone: Sequence, together: dict[int, tuple[Path, Sequence]], stage: int
) -> None:
    """Sums of float32 in another order: within 1e-4 after six steps of a learning rate of 0.01."""
    _, publications = together[stage]
    assert list(publications) == list(alone) == list(range(1, NUM_UPDATES + 1))
    for name in METRICS:
        curve = [publication.metrics[name] for publication in publications.values()]
        assert curve == pytest.approx([publication.metrics[name] for publication in alone.values()], rel=1e-4)


def test_ranks_that_share_sequences_give_the_loss_curve_of_one(
    alone: Sequence, tmp_path: Path, trainer_model: Path, start_planes: Callable[..., Planes]
) -> None:
    together = run_through(
        folder_with(trainer_model, tmp_path / "run"),
        start_planes(num_updates=NUM_UPDATES),
        zero_stage=3,
        num_ranks=2,
        train={"parallel": {"sequence": 2}},
    )
    assert list(together) == list(alone)
    for name in METRICS:
        curve = [publication.metrics[name] for publication in together.values()]
        assert curve == pytest.approx([publication.metrics[name] for publication in alone.values()], rel=1e-4)


LORA = {"rank": 3, "alpha": 12.0}
KL_IN_REWARD = {"name": "reinforce_plus_plus", "kl_coef": 0.1}
TOGETHER_WITH: dict[str, tuple[int, dict[str, Any]]] = {
    # What else a job asks for, with the stage of ZeRO.
    "recorded trajectories": (2, RECORDED),
    "recorded trajectories, an adapter, branches": (3, {**RECORDED, "train": {"lora": LORA, "tree": False}}),
    "an adapter": (2, {"train": {"lora": LORA}}),
    "checkpointed activations": (3, {"train": {"gradient_checkpointing": True}}),
    "a reference in the reward": (3, {"algorithm": KL_IN_REWARD}),
}


@pytest.mark.parametrize("case", TOGETHER_WITH)
def test_two_ranks_do_what_one_does_whatever_else_is_asked_for(
    tmp_path: Path, trainer_model: Path, start_planes: Callable[..., Planes], case: str
) -> None:
    stage, changes = TOGETHER_WITH[case]
    alone, together = (
        run_through(
            folder_with(trainer_model, tmp_path / str(num_ranks)),
            start_planes(num_updates=NUM_UPDATES, change=as_recorded if "data" in changes else as_it_is),
            zero_stage=stage,
            num_ranks=num_ranks,
            **changes,
        )
        for num_ranks in (1, 2)
    )
    assert list(together) == list(alone) == list(range(1, NUM_UPDATES + 1))
    for version, publication in together.items():
        ours, theirs = publication.metrics, alone[version].metrics
        assert ours.keys() == theirs.keys()
        for name in ("train/loss", "train/grad_norm", "train/entropy", "train/num_trained_tokens"):
            assert ours[name] == pytest.approx(theirs[name], rel=1e-4), (version, name)


@pytest.mark.parametrize("stage", [2, 3])
def test_whichever_rank_is_killed_the_weights_are_the_same_to_the_bit(
    tmp_path: Path,
    trainer_model: Path,
    start_planes: Callable[..., Planes],
    together: dict[int, tuple[Path, Sequence]],
    stage: int,
) -> None:
    """Rank 0 before version 3 is recorded (no checkpoint yet), rank 1 after version 5 is (one of batch 4)."""
    folder, own_planes = folder_with(trainer_model, tmp_path / "run"), start_planes(num_updates=NUM_UPDATES)
    trainer = start_trainer(folder, own_planes, zero_stage=stage, num_ranks=2)
    other = other_rank(trainer)

    def kill_rank_0(publication: Publication) -> None:
        if publication.version == 3:
            trainer.process.kill()
            raise PublicationLost

    own_planes.before_publication = kill_rank_0
    trainer.begin(1)
    assert trainer.process.wait(DEADLINE_S) == -signal.SIGKILL
    trainer.close()
    psutil.wait_procs([other], timeout=DEADLINE_S)
    assert not other.is_running(), "no rank outlives rank 0"

    trainer = start_trainer(folder, own_planes, zero_stage=stage, num_ranks=2)
    own_planes.before_publication = lambda _publication: None
    own_planes.num_batches_ready = 5
    trainer.begin(2)
    while own_planes.latest_version < 5:
        trainer.receive()
    other_rank(trainer).kill()
    own_planes.num_batches_ready = NUM_UPDATES
    failed, _ = trainer.receive_until(Failed)
    assert failed.reason == "rank 1 of the trainer ended with exit code -9"
    trainer.close()

    run_through(folder, own_planes, zero_stage=stage, num_ranks=2)
    assert own_planes.conflicts == []
    assert list(own_planes.publications) == list(range(1, NUM_UPDATES + 1))
    undisturbed, _ = together[stage]
    for version in range(1, NUM_UPDATES + 1):
        assert digests(folder, version) == digests(undisturbed, version)


def published_by(model: Path, folder: Path, *, zero_stage: int, num_ranks: int) -> dict[str, dict[str, Any]]:
    check = "tests.integration.workers.train.distributed.trainer_gather_check"
    return run_check([check, str(model), str(folder), str(zero_stage), str(num_ranks)])


def test_each_rank_writes_a_share_of_the_shards_and_gathers_by_bucket_never_the_whole_model(
    trainer_model: Path, tmp_path: Path
) -> None:
    alone = published_by(trainer_model, tmp_path / "alone", zero_stage=0, num_ranks=1)
    spread = published_by(trainer_model, tmp_path / "spread", zero_stage=3, num_ranks=2)
    held = published_by(trainer_model, tmp_path / "held", zero_stage=1, num_ranks=2)
    for rows in (spread, held):
        for name in ("whole", "small"):
            assert rows[name]["sha256"] == alone[name]["sha256"]
    assert alone["flawed"]["told"] == (
        "weights of version 1 cannot serve: model.norm.weight has NaN or infinite values"
    )
    assert not list((tmp_path / "alone" / "flawed").iterdir())
    num_shards = alone["small"]["num_shards"]
    assert num_shards == alone["small"]["num_written"] > 4
    for rows in (spread, held):
        assert rows["small"]["num_written"] == (num_shards + 1) // 2
    whole, small = spread["whole"], spread["small"]
    assert whole["num_gathers"] == 1
    assert small["most_bytes"] <= max(8 * 1024, small["largest_tensor"]) < whole["most_bytes"] / 4
    assert small["num_gathers"] > 4


async def test_a_supervisor_of_two_core_devices_starts_a_trainer_with_a_rank_on_each(
    trainer_model: Path, tmp_path: Path
) -> None:
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        pytest.skip("two devices need two cores")
    devices = [f"cpu:{cores[0]}", f"cpu:{cores[-1]}"]
    plane = await FakeControlPlane.start()
    plane.tags = ["train"]
    spec: dict[str, Any] = make_spec()
    folders: dict[str, Any] = {
        "model_path": str(trainer_model),
        "artifact_root": (tmp_path / "artifacts").as_uri(),
    }
    plane.reside(Role.TRAIN, **folders, **spec)
    supervisor = supervisor_start(tmp_path, plane, devices)
    try:
        await until(
            lambda: cores_of_ranks_below(supervisor.pid) == [{cores[0]}, {cores[-1]}],
            what="both ranks have taken their seats",
            timeout_s=DEADLINE_S,
        )
        told = plane.heartbeats[0].capabilities
        assert told is not None
        assert [device.id for device in told.devices] == devices
        assert told.host == os.uname().nodename
    finally:
        supervisor.terminate()
        supervisor.wait(30)
        await plane.stop()


def supervisor_start(folder: Path, plane: FakeControlPlane, devices: list[str]) -> "subprocess.Popen[bytes]":
    (folder / "token").write_text(TOKEN)
    return subprocess.Popen(
        [
            *(sys.executable, "-m", "seamlessflow_workers.supervisor", "--name", "alpha"),
            *("--control-plane-url", plane.url, "--token-file", str(folder / "token")),
            *("--home", str(folder), "--no-fork-server", "--devices", ",".join(devices)),
        ],
        env={key: value for key, value in os.environ.items() if not key.endswith("_URL")}
        | {"PYTHONPATH": f"{ROOT}/platform:{ROOT}/workers"},
    )


def cores_of_ranks_below(supervisor_pid: int) -> list[set[int]]:
    """Return where the trainer's ranks may run, the first one first; none that is only starting."""
    below = psutil.Process(supervisor_pid).children(recursive=True)
    try:
        ranks = [one for one in below if "seamlessflow_workers.train" in " ".join(one.cmdline())]
        return [os.sched_getaffinity(one.pid) for one in ranks]
    except (psutil.NoSuchProcess, ProcessLookupError):  # one has just ended
        return []
