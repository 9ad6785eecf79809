"""When a job's newest version is to be evaluated."""


def is_evaluation_due(*, every: int, latest_version: int, last_evaluated: int | None, is_last: bool) -> bool:
    """Whether to evaluate. `last_evaluated`: the newest version with an evaluation, None before the first. `is_last`:
    no version follows.

    Versions published during an evaluation are not caught up on; only the newest one is evaluated.
    """
    if last_evaluated is None:
        return True
    if latest_version <= last_evaluated:
        return False
    return is_last or latest_version // every > last_evaluated // every
