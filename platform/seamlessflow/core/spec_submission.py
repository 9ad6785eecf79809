"""Checks a submitted spec more strictly than loading a stored one does.

Takes a mapping and returns a validated spec. Rules added here refuse new jobs and leave stored ones
alone.
"""

from collections.abc import Mapping
from typing import Any

from seamlessflow.core.algorithms.ineffective import ineffective_options
from seamlessflow.core.job_spec import InvalidJobSpec, JobSpec, job_spec_parse
from seamlessflow.core.spec_problems import SpecProblem


def submitted_spec_parse(body: Mapping[str, Any]) -> JobSpec:
    """Raises InvalidJobSpec with every fault found."""
    spec = job_spec_parse(body)
    problems = [
        SpecProblem(field=f"algorithm.{field}", detail=detail)
        for field, detail in ineffective_options(spec.algorithm)
    ]
    if problems:
        raise InvalidJobSpec(problems)
    return spec
