"""When a common queue is full for a job: only if others, who wait for less than their quota, would not be."""


def is_full_for(*, num_of_job: int, num_in_all: int, num_jobs: int, limit: int) -> bool:
    """Return whether a job that already has `num_of_job` entries may have no more.

    num_jobs: those that have entries, this one included. Below the limit no job is refused. Beyond it, a job with less
    than an equal quota is still let in, so one job cannot fill the queue for others; all together have less than twice
    the limit.
    """
    return num_in_all >= limit and num_of_job >= limit / max(1, num_jobs)
