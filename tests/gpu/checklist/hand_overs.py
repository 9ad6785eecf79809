"""Engine and trainer take turns on one card, as a machine that rolls out and trains has them do.

In each hand-over the engine sleeps, the trainer makes one step and publishes, and the engine wakes with the new
version, from the trainer's memory. In some of them one of the two is killed with SIGKILL and started anew. In the end
the job has all its versions, the engine's logprobs are those of the last one's files, and the card holds no more than
after the first.
"""

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file

from seamlessflow.core.protocol.child import Ended, Ready
from seamlessflow.core.protocol.worker import Publication
from seamlessflow_workers.weights.artifacts import JobArtifacts
from tests.fixtures.trainer_harness import (
    DEADLINE_S,
    JOB,
    VOCABULARY,
    Planes,
    PublicationLost,
    TrainerProcess,
    folder_with,
    make_spec,
)
from tests.gpu.checklist.checking import Figures, item_main, stopwatch
from tests.gpu.checklist.hand_overs_engine import EngineProcess
from tests.gpu.checklist.memory import cards_open
from tests.gpu.checklist.models import qwen3_write
from tests.gpu.models import load_plain, plain_logprobs

# What is killed, by the number of the hand-over.
KILLS = {
    3: "trainer in its step",
    5: "engine asleep",
    7: "engine while it samples",
    9: "trainer between phases",
}
NUM_TOKENS = 16
MAX_LOST_BYTES = 256 << 20  # on the card, over all hand-overs; a lost copy of anything would be more
MAX_MISMATCH = {"cpu": 5e-5, "cuda": 1e-3}


class HandOvers:
    def __init__(self, folder: Path, model: Path, device: str, stack: ExitStack) -> None:
        self._folder = folder_with(model, folder / "job")
        self._spec = make_spec(
            num_updates=1000, checkpoint_every_updates=1, weight_transport="ipc", learning_rate=1e-4
        )
        self._stack = stack
        self.planes = Planes(num_updates=1000)
        self.planes.start()
        stack.callback(self.planes.stop)
        self.engine = EngineProcess(model, folder / "engine.sock", device)
        stack.callback(self.engine.kill)
        self.trainer = self._trainer()
        self.num_from_memory = 0

    def run(self, number: int) -> dict[str, Any]:
        """Hand the card to the trainer for a step and back, and return how long it took."""
        killed = KILLS.get(number, "")
        with stopwatch() as trained:
            self.engine.post("/sleep?level=1")
            if killed == "engine asleep":
                self.engine.kill()
            if killed == "trainer between phases":
                self.trainer.kill()
                self.trainer = self._trainer()
            self._train(number, is_killed=killed == "trainer in its step")
        with stopwatch() as updated:
            version = self.version(number)
            if self.engine.process.poll() is None:
                self.engine.post("/wake_up")
                self._update(version, number, is_from_memory=not killed)
            else:
                self.engine.start(weights=version, version=str(number))
        answer = self.engine.generate(_prompt(number), NUM_TOKENS)
        if killed == "engine while it samples":
            self.engine.kill_while_it_samples(_prompt(number))
            self.engine.start(weights=version, version=str(number))
            answer = self.engine.generate(_prompt(number), NUM_TOKENS)
        assert answer["weight_versions"] == [{"version": str(number), "start": 0, "end": NUM_TOKENS}], answer
        return {"killed": killed, "train_s": trained(), "update_s": updated()}

    def version(self, number: int) -> Path:
        return JobArtifacts((self._folder / "artifacts").as_uri(), JOB).versions / str(number)

    def _train(self, number: int, *, is_killed: bool) -> None:
        def kill_before_recorded(_publication: Publication) -> None:
            self.planes.before_publication = lambda _publication: None
            self.trainer.process.kill()
            raise PublicationLost

        if is_killed:
            self.planes.before_publication = kill_before_recorded
        self.planes.num_batches_ready = number
        self.trainer.begin(number, num_batches=1)
        if is_killed:
            self.trainer.process.wait(DEADLINE_S)
            self.trainer.close()
            self.trainer = self._trainer()
            self.trainer.begin(number, num_batches=1)
        self.trainer.receive_until(Ended)
        assert self.planes.latest_version == number

    def _update(self, version: Path, number: int, *, is_from_memory: bool) -> None:
        """A trainer that was started anew may have its newest version as files only."""
        staged = self.engine.post("/stage_weights", {"path": str(version), "transport": "ipc"})
        assert staged["transport"] == "ipc" or not is_from_memory, staged
        self.num_from_memory += staged["transport"] == "ipc"
        self.engine.update(version, str(number))

    def _trainer(self) -> TrainerProcess:
        trainer = TrainerProcess(self._folder, self.planes, self._spec)
        self._stack.callback(trainer.kill)
        trainer.receive_until(Ready)
        return trainer


def check(device: str, sizes: list[str], figures: Figures) -> None:
    num_hand_overs, num_layers, width = map(int, sizes)
    if device == "cpu":
        figures.leave_out("the card's memory", "a processor's is judged by other tests")
    with TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        model = qwen3_write(folder / "model", num_layers=num_layers, width=width, vocabulary=4096)
        used = cards_open() if device == "cuda" else None
        hand_overs = HandOvers(folder, model, device, stack)
        held = []
        for number in range(1, num_hand_overs + 1):
            row = hand_overs.run(number)
            held.append(_held(hand_overs, used))
            figures.note(f"hand-over {number}", **row, card_bytes=held[-1])
        assert hand_overs.planes.conflicts == []
        assert [one.batch_number for one in hand_overs.planes.publications.values()] == list(
            range(1, num_hand_overs + 1)
        )
        assert hand_overs.num_from_memory >= num_hand_overs - len(KILLS)
        mismatch = _mismatch(hand_overs, model, num_hand_overs, device)
        figures.note("all", from_memory=hand_overs.num_from_memory, mismatch_max=mismatch)
        assert mismatch < MAX_MISMATCH[device]
        lost = [now - held[0] for now in held if now is not None and held[0] is not None]
        assert all(num_bytes <= MAX_LOST_BYTES for num_bytes in lost), f"bytes that the card lost: {lost}"


def _held(hand_overs: HandOvers, used: Callable[[], list[int]] | None) -> int | None:
    """Return the bytes in use on the first card while the engine serves and the trainer waits."""
    assert hand_overs.engine.process.poll() is None
    return used()[0] if used else None


def _prompt(number: int) -> list[int]:
    tokens: list[int] = np.random.default_rng(number).integers(3, VOCABULARY, size=24).tolist()
    return tokens


@torch.no_grad()
def _mismatch(hand_overs: HandOvers, model: Path, number: int, device: str) -> float:
    """Return the largest difference between the engine's logprobs and those of the last version's files."""
    plain = load_plain(model, dtype=torch.float32, device=torch.device(device))
    files = hand_overs.version(number).glob("*.safetensors")
    plain.load_state_dict({name: tensor for file in files for name, tensor in load_file(file).items()})
    prompt = _prompt(0)
    answer = hand_overs.engine.generate(prompt, NUM_TOKENS)
    logprobs = [entry["logprob"] for entry in answer["logprobs"]["content"]]
    expected = plain_logprobs(plain, prompt, answer["token_ids"])
    return float(np.abs(expected - np.array(logprobs)).max())


if __name__ == "__main__":
    item_main(check)
