"""Six jobs take turns on a machine that is warm for four: stopped trainers lose no progress, and repeat no batch.

The trainers are real but for their computing; a machine is played as its supervisor would: it starts a trainer for its
turn and stops those that the control plane's rule no longer keeps.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from uuid import UUID

import pytest

from seamlessflow.core.protocol.child import Ended, Ready
from seamlessflow.core.scheduling.warm import WarmCandidate, leaves_checkpoint, warm_choose
from tests.fixtures.trainer_harness import Planes, TrainerProcess, folder_with, make_model, make_spec

NUM_JOBS, NUM_ROUNDS = 6, 3
PACED = "tests.fakes.paced_trainer"
SPEC = make_spec(num_updates=100, checkpoint_every_updates=50)  # none is due by itself

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@dataclass
class Job:
    folder: Path
    planes: Planes
    seen: WarmCandidate
    trainer: TrainerProcess | None = None
    # Of each process: the batches in the weights that were published before, and in those that it began with.
    starts: list[tuple[int, int]] = field(default_factory=list)

    def turn(self, number: int, *, saves: bool) -> None:
        num_published, num_leases = len(self.planes.publications), len(self.planes.leases)
        self.planes.num_batches_ready = num_published + 1
        if is_new := self.trainer is None:
            self.trainer = TrainerProcess(self.folder, self.planes, SPEC, module=PACED)
            self.trainer.receive_until(Ready)
        assert self.trainer is not None
        self.trainer.begin(number, num_batches=1, leaves_checkpoint=saves)
        self.trainer.receive_until(Ended)
        if is_new:
            self.starts.append((num_published, self.planes.leases[num_leases].applied_batch))

    def stop(self) -> None:
        if self.trainer is not None:
            self.trainer.kill()
            self.trainer = None


@pytest.fixture
def jobs(tmp_path: Path) -> Iterator[list[Job]]:
    make_model(tmp_path / "model")
    made = []
    with ExitStack() as stack:
        for number in range(NUM_JOBS):
            folder = folder_with(tmp_path / "model", tmp_path / str(number))
            planes = Planes(num_updates=100, flat_batches=frozenset())
            planes.start()
            stack.callback(planes.stop)
            job = Job(folder, planes, WarmCandidate(job_id=UUID(int=number), order=float(number)))
            stack.callback(job.stop)
            made.append(job)
        yield made


def test_fault_5_an_evicted_trainer_checkpoints_first_and_no_batch_is_applied_twice(jobs: list[Job]) -> None:
    for turn in range(NUM_ROUNDS * NUM_JOBS):
        job = jobs[turn % NUM_JOBS]
        job.seen = replace(job.seen, has_trainer_state=True, has_trained=True)
        seen = [replace(one.seen, is_at_work=one is job) for one in jobs]
        for other in jobs:
            if other.seen.job_id not in warm_choose(seen):
                other.stop()
        job.turn(turn + 1, saves=leaves_checkpoint(seen, job.seen.job_id))

    for job in jobs:
        assert [publication.batch_number for publication in job.planes.publications.values()] == [1, 2, 3]
    assert [len(job.starts) for job in jobs] == [1, 1, 1, 3, 3, 3]  # the first stay, the others change
    for job in jobs:
        assert all(published == applied for published, applied in job.starts), "a batch was applied again"
