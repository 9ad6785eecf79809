"""GRPO on the calculator in one process without planes, the baseline for the platform.

One loop in plain torch: sample a batch of groups with the embedded engine's batching (in this
process, on the same weights), grade it, take one AdamW step, copy the weights, repeat. It is always
on policy. It takes a model folder and a tasks file and prints one JSON line per update, `{"at_s",
"reward"}`, where `at_s` counts from the start of the process.
"""

import argparse
import itertools
import json
import random
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import psutil
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM

from seamlessflow.data_plane.turns.rendering.model_text import ModelText, model_text_load
from seamlessflow.data_plane.turns.rendering.parsers.deltas import parse_whole
from seamlessflow_workers.agents.environments.calc_tool import CALC_TOOL, InvalidExpression, calculate
from seamlessflow_workers.rollout.engine.model.loading import LoadOptions, load_runner
from seamlessflow_workers.rollout.engine.scheduler import Scheduler
from seamlessflow_workers.rollout.serving.request import GenerateRequest, SamplingParams
from seamlessflow_workers.rollout.serving.sequence import ServedSequence as EngineSequence

MAX_MODEL_LEN = 256
MAX_TOKENS_PER_TURN = 24
MAX_TURNS = 4
CLIP = 0.2
BETAS = (0.9, 0.95)
MAX_GRAD_NORM = 1.0


@dataclass(slots=True)
class Episode:
    """A conversation as tokens; `is_sampled` marks those of the policy."""

    answer: str
    tokens: list[int]
    is_sampled: list[bool] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    reward: float = 0.0

    def extend(self, tokens: Sequence[int], *, logprobs: Sequence[float] | None = None) -> None:
        self.tokens += tokens
        self.is_sampled += [logprobs is not None] * len(tokens)
        self.logprobs += logprobs if logprobs is not None else [0.0] * len(tokens)


class Sampler:
    """Batched sampling from a copy of the policy's weights."""

    def __init__(self, model: Path, text: ModelText, *, num_slots: int, seed: int) -> None:
        options = LoadOptions(
            model=model,
            weights=None,
            dtype=torch.float32,
            device=torch.device("cpu"),
            max_model_len=MAX_MODEL_LEN,
            num_slots=num_slots,
        )
        self._runner = load_runner(options)
        self._decoder = self._runner._decoder
        self._scheduler = Scheduler(self._runner, max_batched_tokens=2048)
        self._text = text
        self._random = random.Random(seed)

    @torch.no_grad()
    def weights_set(self, weights: dict[str, Tensor]) -> None:
        for name, parameter in self._decoder.parameters.items():
            parameter.copy_(weights[name])
        self._decoder.refresh()
        self._scheduler.forget_prefixes()

    def turn(self, episodes: Sequence[Episode]) -> list[str]:
        """Sample one turn of each episode and return the texts."""
        params = SamplingParams(max_tokens=MAX_TOKENS_PER_TURN, logprobs=0)
        running = [
            EngineSequence(
                request_id=str(number),
                body=GenerateRequest(token_ids=episode.tokens, sampling_params=params),
                eos_token_ids=self._runner.eos_token_ids,
                max_model_len=MAX_MODEL_LEN,
                seed=self._random.getrandbits(64),
            )
            for number, episode in enumerate(episodes)
        ]
        for sequence in running:
            self._scheduler.add(sequence)
        self._scheduler.admit()
        while (batch := self._scheduler.plan(weight_version="0")) is not None:
            self._scheduler.commit(batch, self._runner.step(batch))
            self._scheduler.admit()
        for sequence, episode in zip(running, episodes, strict=True):
            sampled = sequence.tokens[sequence.num_prompt_tokens : sequence.num_tokens].tolist()
            episode.extend(sampled, logprobs=sequence.logprobs[: len(sampled)].tolist())
        return [
            self._text.decode(sequence.tokens[sequence.num_prompt_tokens : sequence.num_tokens].tolist())
            for sequence in running
        ]


class Calculator:
    """The demo's environment: ask, run the tool, ask again, grade the last answer."""

    def __init__(self, text: ModelText, sampler: Sampler) -> None:
        self._text = text
        self._sampler = sampler

    def run(self, tasks: Sequence[dict[str, str]], *, group_size: int) -> list[Episode]:
        episodes = []
        for task in tasks:
            prompt = self._ids([{"role": "user", "content": task["question"]}], tools=[CALC_TOOL])
            for _ in range(group_size):
                episode = Episode(task["answer"], list(prompt))
                episode.is_sampled, episode.logprobs = [False] * len(prompt), [0.0] * len(prompt)
                episodes.append(episode)
        asking = episodes
        for _ in range(MAX_TURNS):
            said = self._sampler.turn(asking)
            asking = [e for e, text in zip(asking, said, strict=True) if self._answered(e, text)]
            if not asking:
                break
        return episodes

    def _answered(self, episode: Episode, said: str) -> bool:
        """Record one answer of the policy; return True if it called the tool and must continue."""
        parsed = parse_whole(self._text.family.parser(tools=()), said)
        if not parsed.tool_calls:
            episode.reward = float(parsed.content.strip() == episode.answer)
            return False
        replies = [{"role": "tool", "content": _tool(call.arguments)} for call in parsed.tool_calls]
        new = [*self._text.tokenizer.encode("\n", add_special_tokens=False).ids, *self._ids(replies)]
        if len(episode.tokens) + len(new) + MAX_TOKENS_PER_TURN > MAX_MODEL_LEN:
            return False
        episode.extend(new)
        return True

    def _ids(self, messages: list[dict[str, str]], *, tools: list[object] | None = None) -> list[int]:
        rendered = self._text.template.render(messages, tools=tools, arguments={}, add_generation_prompt=True)
        ids: list[int] = self._text.tokenizer.encode(rendered, add_special_tokens=False).ids
        return ids


def _tool(arguments: str) -> str:
    try:
        return calculate(json.loads(arguments)["expression"])
    except (InvalidExpression, ValueError, KeyError, TypeError):
        return "error"


def loss_of(model: torch.nn.Module, episodes: Sequence[Episode], advantages: Tensor) -> Tensor:
    """Return GRPO's clipped token loss, averaged over sampled tokens, on a padded batch."""
    longest = max(len(episode.tokens) for episode in episodes)
    ids = torch.zeros(len(episodes), longest, dtype=torch.long)
    mask, old = torch.zeros(len(episodes), longest), torch.zeros(len(episodes), longest)
    for row, episode in enumerate(episodes):
        length = len(episode.tokens)
        ids[row, :length] = torch.tensor(episode.tokens)
        mask[row, :length] = torch.tensor(episode.is_sampled, dtype=torch.float32)
        old[row, :length] = torch.tensor(episode.logprobs)
    logits = model(input_ids=ids, use_cache=False).logits[:, :-1]
    logprobs = torch.log_softmax(logits, -1).gather(-1, ids[:, 1:, None])[..., 0]
    ratio = (logprobs - old[:, 1:]).exp()
    signed = advantages[:, None]
    gain = torch.minimum(ratio * signed, ratio.clamp(1 - CLIP, 1 + CLIP) * signed)
    return -(gain * mask[:, 1:]).sum() / mask[:, 1:].sum()


def learn(arguments: argparse.Namespace) -> Iterator[float]:
    """Yield the mean reward of each update's batch, before the update."""
    torch.manual_seed(arguments.seed)
    text = model_text_load(str(arguments.model))
    model = AutoModelForCausalLM.from_pretrained(arguments.model, dtype=torch.float32).eval()
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=arguments.learning_rate, betas=BETAS, weight_decay=0.0
    )
    num_sessions = arguments.num_groups * arguments.group_size
    sampler = Sampler(arguments.model, text, num_slots=num_sessions, seed=arguments.seed)
    torch.set_num_threads(arguments.threads)  # the loader left one
    environment = Calculator(text, sampler)
    tasks = [json.loads(line) for line in arguments.tasks.read_text().splitlines()]
    drawn = itertools.cycle(random.Random(arguments.seed).sample(tasks, len(tasks)))
    for _ in range(arguments.updates):
        batch = [next(drawn) for _ in range(arguments.num_groups)]
        episodes = environment.run(batch, group_size=arguments.group_size)
        rewards = torch.tensor([episode.reward for episode in episodes]).view(-1, arguments.group_size)
        yield float(rewards.mean())
        centred = rewards - rewards.mean(1, keepdim=True)
        advantages = (centred / (rewards.std(1, keepdim=True) + 1e-4)).reshape(-1)
        kept = np.flatnonzero(advantages.abs().numpy() > 1e-6)
        if not len(kept):
            continue
        loss = loss_of(model, [episodes[i] for i in kept], advantages[kept])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), MAX_GRAD_NORM)
        optimizer.step()
        sampler.weights_set(dict(model.named_parameters()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--tasks", type=Path, required=True)
    parser.add_argument("--updates", type=int, default=50)
    parser.add_argument("--num-groups", type=int, default=8)
    parser.add_argument("--group-size", type=int, default=8)
    parser.add_argument("--learning-rate", type=float, default=2e-4)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    began_at = psutil.Process().create_time()
    for reward in learn(parser.parse_args()):
        sys.stdout.write(json.dumps({"at_s": time.time() - began_at, "reward": reward}) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
