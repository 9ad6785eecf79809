"""Checks that the processes which share sequences can divide a model's attention heads."""

from pathlib import Path

from seamlessflow.control_plane.common.errors import field_error
from seamlessflow.control_plane.jobs.submission.references import model_config_read
from seamlessflow.core.training.divisors import divisors_named
from seamlessflow.core.training.section import TrainSection


def heads_check(folder: Path, train: TrainSection) -> None:
    """Refuse more processes than can have equally many heads. Raises ApplicationError.

    A model whose configuration names its heads otherwise is checked when the trainer loads it.
    """
    num_sharing = train.parallel.sequence
    num_heads = model_config_read(folder).get("num_attention_heads") if num_sharing > 1 else None
    if isinstance(num_heads, int) and num_heads % num_sharing:
        raise field_error(
            "train.parallel.sequence",
            f"{num_sharing} does not divide the model's {num_heads} attention heads; "
            f"accepted: {divisors_named(num_heads)}",
        )
