"""The contracts of extensions: classes whose subclasses pytest collects if their names begin with `Test`.

    class TestRiddles(EnvironmentContract):
        name = "riddles"
        tasks = ({"question": "2+2?", "answer": "4"},)

        def best_answer(self, task): return task["answer"]

A subclass names the installed extension and gives examples; the inherited tests check the rest. They need only pytest:
no gateway, no database, no model. Every test is independent of the others.
"""

import asyncio
import math
import subprocess
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, ClassVar, TypeVar

import numpy as np
from pydantic import ValidationError

from seamlessflow.core.algorithms.estimators import Estimator
from seamlessflow.core.environment.episodes import BrokenEpisode, Environment, Outcome, RewardFunction, Task
from seamlessflow.core.environment.section import EnvironmentSection
from seamlessflow.core.extensions.declarations import (
    AdvantageExtension,
    EnvironmentContext,
    EnvironmentExtension,
    ExtensionOptions,
    RewardExtension,
)
from seamlessflow.core.types.rewards import reward_problem
from seamlessflow.extensions.scripted_policy import PolicyRefusal, Reply, scripted_policy
from seamlessflow.runtime.extensions import Declaration, Discovery, extensions_discover, factory_call

Result = TypeVar("Result")
FEW_S = 10.0
NUM_AT_ONCE = 8
MAX_GROUP = 1024  # rollout.group_size
_HEAVY = ("torch", "transformers", "deepspeed", "vllm", "django")
_LOADING = (
    "import sys; from seamlessflow.runtime.extensions import extensions_discover; extensions_discover(); "
    f"print(' '.join(name for name in {_HEAVY} if name in sys.modules))"
)


class _DeclarationContract:
    """Tests that every declaration must pass, whatever its kind."""

    name: ClassVar[str]
    options: ClassVar[Mapping[str, Any]] = {}
    """Options as a job spec would give them; empty: the defaults."""

    def test_it_is_installed_under_its_name(self) -> None:
        found = extensions_discover()
        about_it = [problem for problem in found.problems if repr(self.name) in problem]
        assert about_it == []
        assert self._find(found) is not None, f"no installed package declares {self.name!r}"

    def test_declarations_load_without_a_plane_or_a_learning_framework(self) -> None:
        done = subprocess.run([sys.executable, "-c", _LOADING], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert done.stdout.split() == [], "import these in the module of the factory instead"

    def test_an_unknown_option_is_refused(self) -> None:
        try:
            self.declaration.options.model_validate({**self.options, "no_option_of_this_name": 1})
        except ValidationError:
            return
        raise AssertionError("the options accept a key that they do not declare")

    def test_options_survive_being_stored(self) -> None:
        options = self.declared_options()
        stored = options.model_dump(mode="json")
        assert type(options).model_validate(stored) == options

    @property
    def declaration(self) -> Declaration:
        found = self._find(extensions_discover())
        assert found is not None, f"no installed package declares {self.name!r}"
        return found

    def declared_options(self) -> ExtensionOptions:
        return self.declaration.options.model_validate(dict(self.options))

    def _find(self, found: Discovery) -> Declaration | None:
        raise NotImplementedError


class EnvironmentContract(_DeclarationContract):
    """Tests of an environment. `best_answer` and `wrong_answer` say what a perfect and a bad policy would answer."""

    tasks: ClassVar[Sequence[Task]]
    section: ClassVar[Mapping[str, Any]] = {}
    """Further fields of the job spec's `environment`, such as `max_turns`."""

    def best_answer(self, task: Task) -> Mapping[str, Any] | str:
        """Return the assistant's message, or its text."""
        raise NotImplementedError("override best_answer with what a perfect policy would say to the task")

    def wrong_answer(self, task: Task) -> Mapping[str, Any] | str:
        return "this is not the answer to anything"

    def test_the_best_answer_earns_more_than_a_wrong_one(self) -> None:
        for task in self.tasks:
            best = self._run(task, self.best_answer(task))
            wrong = self._run(task, self.wrong_answer(task))
            assert best.reward > wrong.reward, f"the rewards of {task} are {best.reward} and {wrong.reward}"

    def test_every_outcome_is_complete(self) -> None:
        gives_answer = self.declared.gives_answer
        for task in self.tasks:
            for answer in (self.best_answer(task), self.wrong_answer(task)):
                outcome = self._run(task, answer)
                assert reward_problem(outcome.reward) is None
                assert all(math.isfinite(value) for value in outcome.metrics.values())
                assert gives_answer == (outcome.answer is not None), "gives_answer and the outcomes disagree"

    def test_sessions_run_at_once_without_disturbing_one_another(self) -> None:
        task = self.tasks[0]

        async def play(environment: Environment) -> list[float]:
            async with scripted_policy(lambda _: self.best_answer(task)) as policy:
                runs = (environment.run(task, policy) for _ in range(NUM_AT_ONCE))
                return [outcome.reward for outcome in await asyncio.gather(*runs)]

        assert len(set(self._with_environment(play))) == 1

    def test_a_refused_request_is_no_outcome(self) -> None:
        def refuse(_: list[dict[str, Any]]) -> str:
            raise PolicyRefusal("the session is closed")

        async def play(environment: Environment) -> Outcome | Exception:
            async with scripted_policy(refuse) as policy:
                try:
                    return await environment.run(self.tasks[0], policy)
                except Exception as error:  # noqa: BLE001 - whatever it is, the episode counts as broken
                    return error

        assert isinstance(self._with_environment(play), Exception)

    def test_it_can_be_cancelled_and_goes_on_afterwards(self) -> None:
        task = self.tasks[0]

        async def play(environment: Environment) -> Outcome:
            asked = asyncio.Event()

            def reply(_: list[dict[str, Any]]) -> Mapping[str, Any] | str:
                asked.set()
                return self.best_answer(task)

            async with scripted_policy(reply) as policy:
                running = asyncio.ensure_future(environment.run(task, policy))
                async with asyncio.timeout(FEW_S):
                    await asked.wait()
                running.cancel()
                _, late = await asyncio.wait({running}, timeout=FEW_S)
                assert not late, f"a cancelled session still ran after {FEW_S:g} s"
                return await environment.run(task, policy)

        assert self._with_environment(play).reward is not None

    @property
    def declared(self) -> EnvironmentExtension:
        declaration = self.declaration
        assert isinstance(declaration, EnvironmentExtension)
        return declaration

    def _find(self, found: Discovery) -> Declaration | None:
        return found.extensions.environments.get(self.name)

    def _run(self, task: Task, answer: Mapping[str, Any] | str) -> Outcome:
        async def play(environment: Environment) -> Outcome:
            async with scripted_policy(_always(answer)) as policy:
                return await environment.run(task, policy)

        return self._with_environment(play)

    def _with_environment(self, play: Callable[[Environment], Awaitable[Result]]) -> Result:
        section = EnvironmentSection.model_validate(
            {"name": self.name, "tasks": "tasks.jsonl", "options": dict(self.options), **self.section}
        )

        async def session() -> Result:
            environment: Environment = factory_call(
                self.name, self.declared.factory, EnvironmentContext(section, self.declared_options())
            )
            try:
                return await play(environment)
            finally:
                await environment.close()

        return asyncio.run(session())


class RewardContract(_DeclarationContract):
    """Tests of a reward function. `examples`: (task, an answer, a worse answer)."""

    examples: ClassVar[Sequence[tuple[Task, str, str]]]
    odd_answers: ClassVar[Sequence[str]] = ("", " \n", "\u0000", "½ · 漢字 · 🙂", "9" * 100_000)

    def test_the_better_answer_earns_more(self) -> None:
        for task, better, worse in self.examples:
            rewards = self._grades(task, [better, worse])
            assert rewards[0] > rewards[1], f"the rewards of {better!r} and {worse!r} are {rewards}"

    def test_the_same_answer_earns_the_same(self) -> None:
        for task, better, worse in self.examples:
            assert self._grades(task, [better, worse]) == self._grades(task, [better, worse])

    def test_whatever_a_policy_says_is_graded(self) -> None:
        for task, *_ in self.examples:
            for reward in self._grades(task, self.odd_answers):
                assert reward_problem(reward) is None

    def _find(self, found: Discovery) -> Declaration | None:
        return found.extensions.rewards.get(self.name)

    def _grades(self, task: Task, answers: Sequence[str]) -> list[float]:
        declaration = self.declaration
        assert isinstance(declaration, RewardExtension)

        async def session() -> list[float]:
            reward: RewardFunction = factory_call(self.name, declaration.factory, self.declared_options())
            try:
                return list(await asyncio.gather(*(reward.grade(task, answer) for answer in answers)))
            except BrokenEpisode as error:
                raise AssertionError(f"the examples must be gradable: {error}") from error
            finally:
                await reward.close()

        return asyncio.run(session())


class EstimatorContract:
    """Tests of an estimator's arithmetic, whether or not it is installed."""

    is_group_relative: bool = True

    def estimator(self) -> Estimator:
        raise NotImplementedError("override estimator with a method that returns the estimator under test")

    def test_every_session_gets_one_finite_advantage(self) -> None:
        estimator, chance = self.estimator(), np.random.default_rng(0)
        for size in (1, 2, 3, 8, MAX_GROUP):
            for scale in (1e-6, 1.0, 1e6):
                rewards = chance.normal(size=size) * scale
                of_group = estimator.of_group(rewards)
                of_batch = estimator.of_batch(of_group, np.ones(size, dtype=np.int64))
                for advantages in (of_group, of_batch):
                    assert advantages.shape == (size,)
                    assert np.isfinite(advantages).all()

    def test_sessions_that_train_no_token_are_allowed(self) -> None:
        advantages = np.array([-1.0, 0.0, 1.0, 2.0])
        for num_tokens in ([0, 0, 0, 0], [0, 3, 0, 1]):
            result = self.estimator().of_batch(advantages, np.array(num_tokens, dtype=np.int64))
            assert np.isfinite(result).all()

    def test_the_order_of_sessions_does_not_matter(self) -> None:
        chance = np.random.default_rng(1)
        rewards, order = chance.normal(size=8), chance.permutation(8)
        estimator, ones = self.estimator(), np.ones(8, dtype=np.int64)
        for method in (estimator.of_group, lambda values: estimator.of_batch(values, ones)):
            np.testing.assert_allclose(method(rewards[order]), method(rewards)[order], rtol=1e-9, atol=1e-12)

    def test_the_same_rewards_give_the_same_advantages_and_stay_as_they_are(self) -> None:
        rewards = np.random.default_rng(2).normal(size=8)
        kept, estimator = rewards.copy(), self.estimator()
        estimator.of_group(np.array([3.0, -1.0]))  # earlier calls must leave no trace
        assert np.array_equal(estimator.of_group(rewards), self.estimator().of_group(kept))
        assert np.array_equal(rewards, kept)

    def test_equal_rewards_teach_nothing_if_it_is_relative_to_the_group(self) -> None:
        if not self.is_group_relative:
            return
        for reward in (0.0, 0.1, -3.0, 1e6):
            of_group = self.estimator().of_group(np.full(7, reward))
            of_batch = self.estimator().of_batch(of_group, np.ones(7, dtype=np.int64))
            assert of_batch.tolist() == [0.0] * 7


class AdvantageContract(_DeclarationContract, EstimatorContract):
    """Tests of an installed estimator: its declaration and its arithmetic."""

    @property
    def declared(self) -> AdvantageExtension:
        declaration = self.declaration
        assert isinstance(declaration, AdvantageExtension)
        return declaration

    @property
    def is_group_relative(self) -> bool:  # type: ignore[override]  # read-only here
        return self.declared.is_group_relative

    def estimator(self) -> Estimator:
        estimator: Estimator = factory_call(self.name, self.declared.factory, self.declared_options())
        return estimator

    def _find(self, found: Discovery) -> Declaration | None:
        return found.extensions.advantages.get(self.name)


def _always(answer: Mapping[str, Any] | str) -> Reply:
    return lambda _: answer
