"""Batches of a job with an installed estimator: it is used, or the trainer learns what is missing."""

import sys
import types
from typing import Any

import numpy as np
import pytest

from seamlessflow.core.algorithms.section import AlgorithmSection
from seamlessflow.core.batching.assembler import BatchPlan
from seamlessflow.core.batching.finished import FinishedSession
from seamlessflow.core.extensions.built_in import BUILT_IN
from seamlessflow.core.extensions.declarations import AdvantageExtension, ExtensionOptions, Extensions
from seamlessflow.data_plane.batches.feed import assembled
from seamlessflow.data_plane.errors import ApiError
from tests.fixtures.random_sessions import random_session

PLAN = BatchPlan(
    job_id="job",
    number=1,
    policy_version=0,
    temperature=1.0,
    algorithm=AlgorithmSection.model_validate({"advantage": "doubled", "kl_coef": 0.0}),
)


class Doubled:
    def of_group(self, rewards: Any) -> Any:
        return rewards - rewards.mean()

    def of_batch(self, advantages: Any, num_tokens: Any) -> Any:
        return 2 * advantages


def make(options: ExtensionOptions) -> Doubled:
    return Doubled()


DOUBLED = AdvantageExtension(summary="", factory="third_party_of_a_test:make")
CHANCE = np.random.default_rng(0)
GROUP = [FinishedSession(reward, random_session(CHANCE, num_nodes=6)) for reward in (0.0, 1.0)]


def test_the_installed_estimator_gives_the_advantages(monkeypatch: pytest.MonkeyPatch) -> None:
    third_party: Any = types.ModuleType("third_party_of_a_test")
    third_party.make = make
    monkeypatch.setitem(sys.modules, third_party.__name__, third_party)
    batch = assembled([GROUP], PLAN, Extensions({}, {"doubled": DOUBLED}, {}))

    advantages = batch.advantages_positive + batch.advantages_negative
    assert set(advantages[batch.loss_mask == 1].tolist()) == {-1.0, 1.0}


def test_a_missing_estimator_is_a_refusal_that_names_it(caplog: pytest.LogCaptureFixture) -> None:
    refusal = r"Batch 1 cannot be made: algorithm\.advantage: 'doubled' is not installed"
    with pytest.raises(ApiError, match=refusal) as caught:
        assembled([GROUP], PLAN, BUILT_IN)

    assert (caught.value.status, caught.value.code) == (400, "extension_unusable")
    assert "'doubled' is not installed here" in caplog.text
