"""Three jobs that share eight machines in simulated time: how much of the fleet's bound they use together.

The bound of a job is the rate at which the whole fleet would train it alone if no machine ever waited; the useful share
is the sum of rates by their bounds.
"""

import random

import pytest

from tests.fixtures.fleet_simulation import Load, Simulation

NUM_MACHINES = 8
WARM_UP_S, MEASURED_S = 40.0, 300.0


def long_tail(mean_s: float, *, seed: int) -> tuple[float, ...]:
    """Return lengths of turns of which the longest takes about three times the mean."""
    chance = random.Random(seed)
    lengths = [chance.lognormvariate(0, 0.7) for _ in range(16)]
    scale = mean_s * len(lengths) / sum(lengths)
    return tuple(length * scale for length in lengths)


def load(name: str, ratio: int, *, step_s: float, num_groups: int, max_lag: int) -> Load:
    """Return a job whose rollout takes `ratio` times as many seconds of machines as its training step."""
    group_size, num_slots = 16, 8
    mean_s = ratio * step_s * num_slots / (num_groups * group_size)
    turns = long_tail(mean_s, seed=ratio)
    return Load(name, num_groups, group_size, turns, step_s, num_slots, max_lag=max_lag)


def loads(max_lag: int) -> list[Load]:
    return [
        load("a", 3, step_s=8.0, num_groups=8, max_lag=max_lag),
        load("b", 7, step_s=6.0, num_groups=12, max_lag=max_lag),
        load("c", 15, step_s=4.0, num_groups=16, max_lag=max_lag),
    ]


def useful_share(jobs: list[Load]) -> tuple[float, Simulation]:
    machines = {f"m{number}": {"rollout", "train"} for number in range(NUM_MACHINES)}
    simulation = Simulation(machines, jobs).run(WARM_UP_S)
    before = {job.name: simulation.job(job.name).view.published_batch for job in jobs}
    simulation.time_in.clear()
    simulation.run(MEASURED_S)
    rates = {
        job.name: (simulation.job(job.name).view.published_batch - before[job.name]) / MEASURED_S
        for job in jobs
    }
    share = sum(rates[job.name] * job.machine_s_per_update / NUM_MACHINES for job in jobs)
    return share, simulation


@pytest.mark.parametrize("max_lag, least", [(0, 0.84), (3, 0.93)])
def test_jobs_that_share_a_fleet_fill_one_anothers_gaps(max_lag: int, least: float) -> None:
    share, simulation = useful_share(loads(max_lag))
    seconds = sum(simulation.time_in.values())
    assert share >= least
    assert simulation.time_in["switching"] / seconds <= (0.12 if max_lag == 0 else 0.05)
    assert all(job.view.published_batch for job in simulation.jobs.values())


def test_an_on_policy_job_alone_leaves_half_of_the_fleet_unused() -> None:
    """This is what sharing gains; without it the first test would show nothing."""
    for job in loads(0):
        assert useful_share([job])[0] < 0.55
