"""What the warm start imitates: only right use in practice, a known mixture afterwards."""

from collections import Counter

import pytest

from seamlessflow_workers.example.tasks import ExampleEnvironment
from seamlessflow_workers.example.transcripts import (
    GUESS_SHARE,
    RIGHT_USE_SHARE,
    Stage,
    Transcript,
    iter_transcripts,
)

NUM_TRANSCRIPTS = 2000


def kind_of(transcript: Transcript) -> str:
    messages = transcript.messages
    if len(messages) == 2:
        return "guess"
    asked = messages[0]["content"].removeprefix("What is ").removesuffix("?")
    called = messages[1]["tool_calls"][0]["function"]["arguments"]
    return "right" if called == f'{{"expression": "{asked}"}}' else "garbled"


def kinds(stage: Stage) -> Counter[str]:
    transcripts = iter_transcripts(
        ExampleEnvironment.CALCULATOR, stage, num_transcripts=NUM_TRANSCRIPTS, seed=0
    )
    return Counter(map(kind_of, transcripts))


def test_practice_shows_right_use_only() -> None:
    assert kinds(Stage.PRACTICE) == {"right": NUM_TRANSCRIPTS}


def test_the_mixture_has_its_shares() -> None:
    found = kinds(Stage.MIXTURE)
    assert found["guess"] / NUM_TRANSCRIPTS == pytest.approx(GUESS_SHARE, abs=0.03)
    # Some garbled expressions come out as they were.
    assert RIGHT_USE_SHARE - 0.03 < found["right"] / NUM_TRANSCRIPTS < RIGHT_USE_SHARE + 0.10
    assert found["garbled"] > 0


@pytest.mark.parametrize("environment", ExampleEnvironment)
def test_transcripts_are_decided_by_the_seed(environment: ExampleEnvironment) -> None:
    def some(seed: int) -> list[Transcript]:
        return list(iter_transcripts(environment, Stage.MIXTURE, num_transcripts=50, seed=seed))

    assert some(0) == some(0)
    assert some(0) != some(1)
