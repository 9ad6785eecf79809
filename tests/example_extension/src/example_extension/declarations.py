"""The package's declarations. Every process of the platform loads them, so nothing heavy is imported here."""

from typing import Annotated

from pydantic import Field

from seamlessflow.extensions import (
    AdvantageExtension,
    EnvironmentExtension,
    ExtensionOptions,
    RewardExtension,
)


class QuestionOptions(ExtensionOptions):
    prefix: Annotated[str, Field(max_length=200)] = ""
    """Text to put before every question."""


class RankOptions(ExtensionOptions):
    spread: Annotated[float, Field(gt=0, le=10)] = 1.0
    """Advantage of the best session of a group. The worst session gets the negative of it."""


ONE_QUESTION = EnvironmentExtension(
    summary="Asks the question of a task once; a reward function grades the answer.",
    factory="example_extension.one_question:create",
    options=QuestionOptions,
    gives_answer=True,
)
RANK = AdvantageExtension(
    summary="Ranks of the rewards within a group, from -spread to spread.",
    factory="example_extension.rank:create",
    options=RankOptions,
)
EVEN_DIGITS = RewardExtension(
    summary="The share of even digits in the answer.", factory="example_extension.even_digits:create"
)
