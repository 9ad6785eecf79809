"""The jobs that the benchmark of the algorithms submits."""

from pathlib import Path

import pytest

from seamlessflow.core.algorithms.options import AlgorithmName
from seamlessflow.core.job_spec import job_spec_parse
from tests.benchmarks.example_jobs import NUM_UPDATES, job_spec

FILES = {"model": Path("/models/calculator"), "tasks": Path("/models/tasks.jsonl")}


@pytest.mark.parametrize("name", AlgorithmName)
def test_every_algorithm_has_an_example_job_with_its_own_preset(name: AlgorithmName) -> None:
    spec = job_spec_parse(job_spec(FILES, name, seed=2))
    assert (spec.algorithm.name, spec.seed, spec.train.num_updates) == (name, 2, NUM_UPDATES)
