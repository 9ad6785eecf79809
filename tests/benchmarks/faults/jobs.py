"""Tags that change all the time, and jobs that crash whatever runs them: faults 13 and 16."""

import random
import shutil
import time

from seamlessflow.client import ApiError
from tests.benchmarks.faults.trial import Fault, Trial

NUM_RETAGS = 40
CHOICES: tuple[list[str], ...] = (["rollout", "train"], ["rollout"], ["train"], ["agent"], [])
ENDED_WITHIN_S = 300.0
POISON = "import os, signal; os.kill(os.getppid(), signal.SIGKILL)"


def retagged_all_the_time(trial: Trial) -> None:
    """Retag at random moments, so in every state of a phase; at the end the machines have their
    original tags."""
    trial.under_way(trial.spec(num_updates=60))
    choose = random.Random(0)
    with trial.world.client() as client:
        true_tags = {machine.name: list(machine.tags) for machine in trial.world.machines}
        for number in range(NUM_RETAGS):
            name = choose.choice(sorted(true_tags))
            _retag(trial, name, choose.choice(CHOICES), f"retag {number} of {name}")
            time.sleep(choose.uniform(0, 1))
        for name, tags in true_tags.items():
            _retag(trial, name, tags, f"as it was: {name} {time.time_ns()}")
        states = {name: client.machine_get(name)["tags"] for name in true_tags}
    trial.require(
        all(sorted(states[name]) == sorted(tags) for name, tags in true_tags.items()), f"tags are {states}"
    )


def _retag(trial: Trial, name: str, tags: list[str], reason: str) -> None:
    with trial.world.client() as client:
        seen = client.machine_get(name)
        if sorted(seen["tags"]) == sorted(tags):
            return
        try:
            client.machine_edit(
                seen["id"], changes={"tags": tags}, reason=reason, generation=seen["generation"]
            )
        except ApiError:
            trial.notes.note("retag", reason, is_done=False)
        else:
            trial.notes.note("retag", reason, is_done=True)


def model_crashes_its_engine(trial: Trial) -> None:
    """Truncate a file of weights: the job fails and says why, and the next job is served."""
    whole, broken = trial.world.models / "calculator", trial.world.models / "broken"
    shutil.rmtree(broken, ignore_errors=True)
    shutil.copytree(whole, broken)
    (weights,) = broken.glob("*.safetensors")
    weights.write_bytes(weights.read_bytes()[: weights.stat().st_size // 2])
    spec = trial.spec(num_updates=4)
    spec["model"]["source"] = str(broken)
    _ends_or_pauses(trial, spec)


def agent_crashes_its_runner(trial: Trial) -> None:
    spec = trial.spec(num_updates=4)
    spec["environment"] = {
        "name": "command",
        "tasks": spec["environment"]["tasks"],
        "command": ["python3", "-c", POISON],
    }
    _ends_or_pauses(trial, spec)


def _ends_or_pauses(trial: Trial, spec: dict[str, object]) -> None:
    answer = trial.submit(spec)
    assert answer is not None
    if answer.is_success:
        job_id = trial.jobs[-1]
        state, took_s = trial.eventually(
            lambda: (state := trial.state(job_id)) in ("failed", "paused") and state,
            within_s=ENDED_WITHIN_S,
            what="an end of the tries",
        )
        job = trial.job(job_id) or {}
        trial.figures.append(
            f"{state} after {took_s:.0f} s: {job.get('state_reason') or job.get('pause_reason')}"
        )
        trial.require(bool(job.get("state_reason")), "no reason is given")
        trial.ends[job_id] = "failed"
        if state != "failed":
            trial.ends[job_id] = "cancelled"
            trial.cancel(job_id)
    else:
        trial.figures.append(f"refused: {answer.json().get('detail', '')[:160]}")
    # The machines are as usable as before.
    trial.under_way(trial.spec(num_updates=4), version=4)


FAULTS = (
    Fault("13", "machines retagged all the time", retagged_all_the_time),
    Fault("16a", "a model crashes its engine", model_crashes_its_engine),
    Fault("16b", "agents kill their runner", agent_crashes_its_runner),
)
