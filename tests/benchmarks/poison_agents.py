"""Agents, a judge and an engine that fail on purpose, for `poison`.

The engine samples anew whenever it is asked: a turn that ends the session or not, with a reward, drawn from how often
its slot was sampled so far. The agents ask until the policy says that this is the end. In: a share of failed attempts,
of four kinds in equal parts: the start of the sandbox, the engine, the agent's machine, the judge. Those of engine and
machine come with each sampled turn, so long sessions fail more often.
"""

import asyncio
import math
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from uuid import UUID

from seamlessflow.core.environment.episodes import BrokenEpisode, Outcome, PolicyEndpoint, Task
from seamlessflow.core.environment.failures import FailureKind
from seamlessflow.core.environment.section import OnFailure
from seamlessflow.core.environment.stages import Stage, stage
from seamlessflow.core.protocol.data_plane import GroupLeaseReply, GroupLeaseRequest
from seamlessflow.data_plane.turns.rendering.model_text import ModelText
from seamlessflow_workers.agents.environments.policy_client import PolicyClient
from seamlessflow_workers.agents.gateway_client import RunnerClient
from tests.fakes.scripted_engine import ScriptedEngine

MEDIAN_TURNS, SPREAD, MAX_TURNS = 4.0, 0.9, 120  # of a lognormal distribution, which is cut off
MEAN_TURNS = MEDIAN_TURNS * math.exp(SPREAD**2 / 2)
TAIL_TOKENS = 200  # of a prompt, which contain its last message
HANGING_S = 3600.0


@dataclass(frozen=True, slots=True)
class Faults:
    """`share`: of all attempts that fail. `are_zero`: the control in which a failure is an outcome of 0."""

    share: float = 0.0
    are_zero: bool = False
    on_failure: OnFailure = OnFailure.RESUME

    @property
    def _each(self) -> float:
        """Return how many failures of each kind there are for each outcome."""
        return self.share / (1 - self.share) / 4

    @property
    def of_setup(self) -> float:
        """Return the chance that the sandbox does not start, in each attempt."""
        return self._each / (1 + 4 * self._each)

    @property
    def of_turn(self) -> float:
        """Return the chance that the engine or the machine fails with a turn that was sampled."""
        return 2 * self._each / MEAN_TURNS

    @property
    def of_grading(self) -> float:
        return self._each / (1 + self._each)


def stops_after(turn: int) -> float:
    """Return the chance that a session which has come to this turn ends with it."""
    if turn >= MAX_TURNS:
        return 1.0
    before = _within(turn - 1)
    return (_within(turn) - before) / (1 - before)


def _within(turns: int) -> float:
    if turns == 0:
        return 0.0
    return 0.5 * (1 + math.erf(math.log((turns + 0.5) / MEDIAN_TURNS) / SPREAD / math.sqrt(2)))


class Engine(ScriptedEngine):
    """Samples anew each time: what it says depends on how often its slot was sampled. `num_pads`: tokens more."""

    num_pads = 0

    def __init__(self, text: ModelText) -> None:
        super().__init__(text, str)  # the script is not asked
        self.num_sampled_turns: Counter[tuple[int, int]] = Counter()

    def _tokens(self, prompt: list[int], max_tokens: int) -> list[int]:
        shown = self.text.tokenizer.decode(prompt[-TAIL_TOKENS:], skip_special_tokens=False)
        asked, _, said = shown.rpartition(self.headers[0])
        group, slot, turn = map(int, asked.rpartition("user\n")[2].partition("<|im_end|>")[0].split())
        num_said = len(self.text.tokenizer.encode(said, add_special_tokens=False).ids)
        self.num_sampled_turns[group, slot] += not num_said
        chance = random.Random(f"{group} {slot} {self.num_sampled_turns[group, slot]}")
        is_last = chance.random() < stops_after(turn)
        reward = int(chance.random() < 1 / (1 + turn / MEDIAN_TURNS))
        words = f"{'end' if is_last else 'on'} {reward}{'.' * self.num_pads}<|im_end|>"
        return self.text.tokenizer.encode(words, add_special_tokens=False).ids[num_said:]


@dataclass(slots=True)
class Script:
    """Says which attempts fail. `attempts`: group, slot and attempt of each session's key."""

    faults: Faults
    engine: Engine
    attempts: dict[str, tuple[int, int, int]] = field(default_factory=dict)

    def fails(self, what: str, key: str, chance: float) -> random.Random | None:
        """Return further chances if an attempt fails in this way."""
        group, slot, attempt = self.attempts[key]
        draws = random.Random(f"{what} {group} {slot} {attempt} {self.engine.num_sampled_turns[group, slot]}")
        return draws if draws.random() < chance else None


class Agent:
    """Asks until the policy says that this is the end, and fails as the script says."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self._client = PolicyClient()

    async def run(self, task: Task, policy: PolicyEndpoint) -> Outcome:
        try:
            return await self._run(policy)
        except BrokenEpisode:
            if not self._script.faults.are_zero:
                raise
            return Outcome(0.0, answer=f"{policy.api_key} 0")

    async def _run(self, policy: PolicyEndpoint) -> Outcome:
        script, key = self._script, policy.api_key
        with stage(Stage.SETUP):
            if script.fails("setup", key, script.faults.of_setup):
                raise BrokenEpisode("the sandbox did not start")
        group, slot, _ = script.attempts[key]
        messages: list[object] = []
        for turn in range(1, MAX_TURNS + 1):
            messages.append({"role": "user", "content": f"{group} {slot} {turn}"})
            num_before = script.engine.num_sampled_turns[group, slot]
            said = await self._client.ask(policy, messages)
            messages.append(said)
            is_new = script.engine.num_sampled_turns[group, slot] > num_before
            if is_new and (draws := script.fails("turn", key, script.faults.of_turn)):
                kind = draws.choice((FailureKind.ENGINE, FailureKind.MACHINE))
                if kind is FailureKind.MACHINE and not script.faults.are_zero:
                    raise asyncio.CancelledError  # as if its machine was drained
                raise BrokenEpisode("the policy did not answer", kind=kind)
            word, reward = (said.content or "").strip(".").split()
            if word == "end":
                return Outcome(0.0, metrics={"turns": turn}, answer=f"{key} {reward}")
        raise BrokenEpisode("the policy did not come to its end")

    async def close(self) -> None:
        await self._client.close()


class Judge:
    """Half of its failures are errors; in the others it hangs until the limit of grading."""

    def __init__(self, script: Script) -> None:
        self._script = script

    async def grade(self, task: Task, answer: str) -> float:
        key, reward = answer.split()
        failing = self._script.fails("judge", key, self._script.faults.of_grading)
        if failing is None:
            return float(reward)
        if self._script.faults.are_zero:
            return 0.0
        if failing.random() < 0.5:
            await asyncio.sleep(HANGING_S)
        raise BrokenEpisode("the judge is away")

    async def close(self) -> None:
        """Nothing to close."""


class ScriptedRunner(RunnerClient):
    """Notes which slot each leased session belongs to."""

    script: Script

    async def groups_lease(self, request: GroupLeaseRequest, *, held: Sequence[UUID]) -> GroupLeaseReply:
        reply = await super().groups_lease(request, held=held)
        for group in reply.groups:
            for session in group.sessions:
                self.script.attempts[session.api_key] = (group.index, session.slot, session.attempt)
        return reply
