"""The idempotency key of a submission: in CI, a repeated run finds the job that it created before.

Takes the environment and the spec as it is sent; returns a key, or None outside the CI systems that are known.
Invariant: the same step of the same run has the same key for the same spec, whichever attempt it is; any other run,
step or spec has another.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

# What names a step of a run, but not the attempt. A system is recognised if all of its variables are set.
CI_SYSTEMS: Mapping[str, tuple[str, ...]] = {
    "github": ("GITHUB_REPOSITORY", "GITHUB_RUN_ID", "GITHUB_JOB"),
    "gitlab": ("CI_PROJECT_PATH", "CI_PIPELINE_ID", "CI_JOB_NAME"),
    "jenkins": ("JENKINS_URL", "BUILD_TAG"),
    "buildkite": ("BUILDKITE_BUILD_ID", "BUILDKITE_STEP_ID"),
    "circleci": ("CIRCLE_WORKFLOW_ID", "CIRCLE_JOB"),
    "azure": ("SYSTEM_COLLECTIONURI", "BUILD_BUILDID", "SYSTEM_JOBNAME"),
    "bitbucket": ("BITBUCKET_REPO_FULL_NAME", "BITBUCKET_BUILD_NUMBER", "BITBUCKET_STEP_UUID"),
    "teamcity": ("TEAMCITY_VERSION", "TEAMCITY_BUILDCONF_NAME", "BUILD_NUMBER"),
}


def submission_key(environment: Mapping[str, str], spec: Mapping[str, Any]) -> str | None:
    for system, names in CI_SYSTEMS.items():
        values = [environment.get(name, "") for name in names]
        if all(values):
            text = json.dumps([values, spec], sort_keys=True, ensure_ascii=False)
            return f"{system}-{hashlib.sha256(text.encode()).hexdigest()[:40]}"
    return None
