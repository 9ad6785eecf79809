"""Checks a submitted spec more strictly than loading a stored one does.

Takes a mapping and returns a validated spec. Rules added here refuse new jobs and leave stored ones
alone.
"""

from collections.abc import Mapping
from typing import Any

from seamlessflow.core.algorithms.ineffective import ineffective_options
from seamlessflow.core.environment.programs import command_problems
from seamlessflow.core.extensions.checks import name_problems, option_problems, options_filled
from seamlessflow.core.extensions.declarations import Extensions
from seamlessflow.core.job_spec import InvalidJobSpec, JobSpec, job_spec_parse
from seamlessflow.core.spec_problems import SpecProblem
from seamlessflow.core.training_problems import critic_problems, mini_batch_problems


def submitted_spec_parse(body: Mapping[str, Any], extensions: Extensions | None = None) -> JobSpec:
    """Return the spec with its extensions' options filled in. Raises InvalidJobSpec with every fault found.

    Without `extensions`, the names of environment, reward function and advantage estimator are not checked: a command
    line does not know what its server has installed.
    """
    unknown = [] if extensions is None else name_problems(body, extensions)
    try:
        spec = job_spec_parse(body)
    except InvalidJobSpec as error:
        raise InvalidJobSpec([*unknown, *error.problems]) from error
    problems = [
        *unknown,
        *(
            SpecProblem(field=f"algorithm.{field}", detail=detail)
            for field, detail in ineffective_options(
                spec.algorithm, num_steps_per_update=spec.train.num_steps_per_update
            )
        ),
        *mini_batch_problems(spec),
        *critic_problems(spec),
        *command_problems(spec.environment.command),
    ]
    if extensions is not None and not unknown:
        problems += option_problems(spec, extensions)
    if problems:
        raise InvalidJobSpec(problems)
    return spec if extensions is None else options_filled(spec, extensions)
