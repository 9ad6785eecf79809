"""What a job with a critic cannot do in its trainer. Takes a valid spec, returns what to refuse of it."""

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
