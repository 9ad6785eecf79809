"""Submissions that may be sent again: a client that lost the answer repeats its request and gets the same job.

Takes a submission and its `Idempotency-Key`; returns the job, and whether it is new. Invariant: one key makes at most
one job in a project, however many requests carry it at once (a unique constraint decides).
"""

import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from django.db import IntegrityError

from seamlessflow.control_plane.accounts.models import Project, User
from seamlessflow.control_plane.common.errors import ApplicationError, field_error
from seamlessflow.control_plane.jobs.models import Job
from seamlessflow.control_plane.jobs.selectors.jobs import job_of_submission
from seamlessflow.control_plane.jobs.submission.submit import job_submit

HEADER = "Idempotency-Key"
_ACCEPTED = re.compile(r"[\x21-\x7e]{1,200}")


def job_submit_once(
    *, project: Project, user: User, submitted: Mapping[str, Any], author: str, key: str | None
) -> tuple[Job, bool]:
    """Return the job, and whether this call made it. Raises ApplicationError: 422 if the key has another spec."""
    if key is None:
        return job_submit(project=project, user=user, submitted=submitted, author=author), True
    if not _ACCEPTED.fullmatch(key):
        raise field_error(HEADER, f"{key!r} is not accepted; accepted: 1 to 200 printable ASCII characters")
    earlier = job_of_submission(project_id=project.id, key=key)
    if earlier is None:
        try:
            made = job_submit(project=project, user=user, submitted=submitted, author=author, key=key)
        except IntegrityError:
            earlier = job_of_submission(project_id=project.id, key=key)
            if earlier is None:  # another constraint than the key's failed
                raise
        else:
            return made, True
    if earlier.spec_submitted != submitted:
        raise ApplicationError(
            f"{HEADER}: {key!r} was used for another spec of this project",
            status=HTTPStatus.UNPROCESSABLE_ENTITY,
        )
    return earlier, False
