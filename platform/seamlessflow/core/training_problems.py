"""Refuses options of `train` that contradict the algorithm or the data. Takes a valid spec, returns its problems.

The rules compare sections of the whole spec, so they are above the sections that they compare.
"""

from seamlessflow.core.algorithms.options import AdvantageEstimator, Objective
from seamlessflow.core.job_spec import JobSpec
from seamlessflow.core.spec_problems import SpecProblem
from seamlessflow.core.training.section import TrainParallelSection


def critic_problems(spec: JobSpec) -> list[SpecProblem]:
    """Return a problem if the critic would have to be spread in a way that only the policy is."""
    if not spec.algorithm.needs_critic or spec.train.parallel == TrainParallelSection():
        return []
    return [
        SpecProblem(
            field="train.parallel",
            detail=(
                "spreads the layers of the policy only, but advantage 'gae' also trains a critic; leave parallel "
                "out, or use another advantage"
            ),
        )
    ]


def mini_batch_problems(spec: JobSpec) -> list[SpecProblem]:
    """Return a problem for each option of `train` whose batches cannot be cut, or repeated, in this way."""
    return [SpecProblem(field=field, detail=detail) for is_so, field, detail in _findings(spec) if is_so]


def _findings(spec: JobSpec) -> list[tuple[bool, str, str]]:
    train, algorithm, is_offline = spec.train, spec.algorithm, spec.data.is_offline
    section = "data" if is_offline else "rollout"
    num_groups = spec.data.groups_per_batch if is_offline else spec.rollout.groups_per_batch
    return [
        (
            train.minibatches > num_groups,
            "train.minibatches",
            (
                f"{train.minibatches} mini-batches cannot be cut from {num_groups} groups "
                f"({section}.groups_per_batch), because groups stay whole; accepted: 1 to {num_groups}"
            ),
        ),
        (
            train.epochs > 1 and is_offline,
            "train.epochs",
            "repeats the batches of a rollout; for an offline dataset use data.num_epochs, and leave epochs out",
        ),
        (
            train.epochs > 1
            and not is_offline
            and algorithm.objective is Objective.POLICY_GRADIENT
            and algorithm.advantage is not AdvantageEstimator.ONE,
            "train.epochs",
            (
                "objective 'policy_gradient' has no ratio, so a second pass would take the batch for one of the new "
                "weights; accepted: 1, or objective 'clip' or 'cispo'"
            ),
        ),
    ]
