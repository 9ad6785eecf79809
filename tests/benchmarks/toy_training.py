"""A training loop without planes for toys: sampler → `assemble_batch` → `TrainEngine.step`, all
from the platform.

Only the sampler belongs to this module: it draws from the weights that are being trained, so
batches are on policy. `core.algorithms.curriculum` chooses the groups, as in the gateway. One
process, one thread, float32.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional
from transformers import Qwen3Config, Qwen3ForCausalLM

from seamlessflow.core.algorithms.curriculum import epoch_plan
from seamlessflow.core.algorithms.mode_aware import JudgeMarkers
from seamlessflow.core.batching.assembler import BatchPlan, assemble_batch
from seamlessflow.core.batching.finished import FinishedSession
from seamlessflow.core.job_spec import JobSpec
from seamlessflow.core.trajectory.prefix_tree import Node, NodeKind
from seamlessflow_workers.train.step.engine import TrainEngine
from tests.benchmarks.toy_domains import CHARACTERS, JUDGE_END, STOP, THINK, ToyTask, transcript

IDS = {character: index for index, character in enumerate(CHARACTERS)}
MAX_ANSWER = 8
GROUP_SIZE, NUM_GROUPS = 8, 16
WARM_BATCH, WARM_LEARNING_RATE = 128, 4e-3


def encode(text: str) -> list[int]:
    return [IDS[character] for character in text]


def warm_model(folder: Path, tasks: Sequence[ToyTask], *, accuracy: float, num_steps: int, seed: int) -> Path:
    """Return a tiny Qwen3 that imitates transcripts of this accuracy."""
    torch.manual_seed(seed)
    config = Qwen3Config(
        vocab_size=len(CHARACTERS), hidden_size=64, intermediate_size=192, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, head_dim=16, max_position_embeddings=64,
        initializer_range=0.08, tie_word_embeddings=True, bos_token_id=None, eos_token_id=IDS[STOP], pad_token_id=None,
    )  # fmt: skip
    model = Qwen3ForCausalLM(config).float()
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=WARM_LEARNING_RATE, betas=(0.9, 0.95), weight_decay=0.0
    )
    chance = random.Random(seed)
    for _ in range(num_steps):
        chosen = [chance.choice(tasks) for _ in range(WARM_BATCH)]
        texts = [task.prompt + transcript(task, chance, accuracy=accuracy) for task in chosen]
        length = max(map(len, texts))
        ids = torch.tensor([encode(text.ljust(length)) for text in texts])
        starts = torch.tensor([[len(task.prompt)] for task in chosen])
        ends, places = torch.tensor([[len(text)] for text in texts]), torch.arange(length)
        is_target = (places >= starts) & (places < ends)
        logits = model(input_ids=ids, use_cache=False).logits[:, :-1]
        loss = functional.cross_entropy(logits[is_target[:, 1:]], ids[:, 1:][is_target[:, 1:]])
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    model.save_pretrained(folder)
    return folder


@torch.no_grad()
def sample(model: Any, prompts: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return answers [B, N] and their logprobs for prompts [B, P] of one width; the caller cuts
    what follows a stop."""
    answers: list[Tensor] = []
    logprobs: list[Tensor] = []
    ids, cache = prompts, None
    is_open = torch.ones(len(prompts), dtype=torch.bool)
    while is_open.any() and len(answers) < MAX_ANSWER:
        output = model(input_ids=ids, past_key_values=cache, use_cache=True)
        cache, log_probabilities = output.past_key_values, torch.log_softmax(output.logits[:, -1], -1)
        ids = torch.multinomial(log_probabilities.exp(), 1, generator=generator)
        answers.append(ids[:, 0])
        logprobs.append(log_probabilities.gather(1, ids)[:, 0])
        is_open &= ids[:, 0] != IDS[STOP]
    return torch.stack(answers, 1), torch.stack(logprobs, 1)


def finished(task: ToyTask, ids: list[int], logprobs: list[float], version: int) -> FinishedSession:
    """Return one answer as the gateway would pass it on, cut after its stop."""
    length = ids.index(IDS[STOP]) + 1 if IDS[STOP] in ids else len(ids)
    text = "".join(CHARACTERS[i] for i in ids[:length])
    nodes = [
        Node(
            index=index, parent=None if index == 0 else 0, kind=kind, token_ids=np.array(tokens, "<i4").tobytes(),
            digests=(), num_path_tokens=len(task.prompt) + index * len(tokens),
            logprobs=np.array(logprobs[:length], "<f4").tobytes() if index else b"",
            spans=(0, version) if index else (),
        )
        for index, (kind, tokens) in enumerate(
            ((NodeKind.ROOT, encode(task.prompt)), (NodeKind.SAMPLED, ids[:length]))
        )
    ]  # fmt: skip
    return FinishedSession(
        reward=task.reward(text),
        nodes=nodes,
        domain=task.domain,
        num_turns=1,
        num_sampled_tokens=length,
        is_truncated=text[-1] != STOP,
    )


@dataclass(slots=True)
class TaskOrder:
    """Epochs over a pool, with or without history resampling."""

    pool: Sequence[int]
    seed: int
    has_history: bool
    lowest: dict[int, float] = field(default_factory=dict)
    queue: list[int] = field(default_factory=list)
    epoch: int = 0

    def take(self, num: int) -> list[int]:
        while len(self.queue) < num:
            plan = epoch_plan(
                np.array(self.pool, dtype=np.int32),
                lowest_rewards=self.lowest if self.has_history else {},
                correct_reward=1.0,
                seed=(self.seed, self.epoch),
            )
            self.queue += plan.order.tolist()
            self.epoch += 1
        taken, self.queue = self.queue[:num], self.queue[num:]
        return taken


Observe = Callable[[int, dict[str, float]], None]


@dataclass(slots=True)
class ToyRun:
    """One run: an algorithm on tasks, from a warm model."""

    model: Path
    algorithm: dict[str, Any]
    tasks: Sequence[ToyTask]
    seed: int
    learning_rate: float = 1e-3
    evaluate_every: int = 0  # updates; 0: never

    def spec(self, num_updates: int) -> JobSpec:
        return JobSpec.model_validate(
            {
                "name": "toy",
                "model": {"source": "artifact://toy", "max_model_len": 64},
                "environment": {"name": "arithmetic", "tasks": "artifact://toy", "max_turns": 1},
                "rollout": {
                    "group_size": GROUP_SIZE,
                    "groups_per_batch": NUM_GROUPS,
                    "max_tokens_per_turn": MAX_ANSWER,
                },
                "algorithm": self.algorithm,
                "train": {
                    "num_updates": num_updates,
                    "learning_rate": self.learning_rate,
                    "warmup_updates": 2,
                },
                "seed": self.seed,
            }
        )

    def train(
        self, num_updates: int, *, pools: Callable[[int], Sequence[int]] | None = None
    ) -> list[dict[str, float]]:
        """Return the metrics of each update; `pools` contains the tasks that an update may choose
        from (its stage)."""
        spec = self.spec(num_updates)
        engine = TrainEngine(self.model, spec)
        # The trained model attends to trees; the sampler needs the usual attention with a cache.
        sampler = Qwen3ForCausalLM.from_pretrained(self.model).float().eval()
        generator = torch.Generator().manual_seed(self.seed)
        pool_of = pools or (lambda _: range(len(self.tasks)))
        order = TaskOrder(pool_of(0), self.seed, spec.algorithm.sampling.history)
        curve = []
        for update in range(num_updates):
            if list(pool_of(update)) != list(order.pool):
                order = TaskOrder(pool_of(update), self.seed, order.has_history)
            sampler.load_state_dict(engine._engine.module.model.state_dict())
            chosen, groups, num_replaced = self._groups(sampler, order, generator, update, spec)
            metrics = engine.step(
                assemble_batch(groups, _plan(spec, update)), step_version=update, optimizer_step=update + 1
            )
            metrics |= {"rollout/num_replaced_groups": float(num_replaced), **_domains(groups)}
            order.lowest |= {
                task: min(s.reward for s in group) for task, group in zip(chosen, groups, strict=True)
            }
            if self.evaluate_every and update % self.evaluate_every == 0:
                metrics |= self._evaluation(sampler, order.pool)
            curve.append(metrics)
        return curve

    def _evaluation(self, sampler: Any, pool: Sequence[int]) -> dict[str, float]:
        """Return the mean reward over the whole pool, and by domain: the tasks drawn say little
        about those left out."""
        tasks = [self.tasks[index] for index in pool for _ in range(GROUP_SIZE)]
        prompts = torch.tensor([encode(task.prompt) for task in tasks])
        answers, logprobs = sample(sampler, prompts, torch.Generator().manual_seed(self.seed))
        sessions = [
            finished(task, ids, values, version=0)
            for task, ids, values in zip(tasks, answers.tolist(), logprobs.tolist(), strict=True)
        ]
        found = {name: value for name, value in _domains([sessions]).items() if name.endswith("/reward")}
        everything = float(np.mean([session.reward for session in sessions]))
        return {f"pool/{name}": value for name, value in {"reward": everything, **found}.items()}

    def _groups(
        self, sampler: Any, order: TaskOrder, generator: torch.Generator, update: int, spec: JobSpec
    ) -> tuple[list[int], list[list[FinishedSession]], int]:
        """Return one batch of groups; with dynamic sampling, groups without contrast are replaced,
        up to the limit."""
        sampling = spec.algorithm.sampling
        chosen: list[int] = []
        groups: list[list[FinishedSession]] = []
        num_replaced = 0
        while len(groups) < NUM_GROUPS:
            tasks = order.take(NUM_GROUPS)
            prompts = torch.tensor([encode(self.tasks[t].prompt) for t in tasks for _ in range(GROUP_SIZE)])
            answers, logprobs = sample(sampler, prompts, generator)
            for number, task in enumerate(tasks):
                rows = range(number * GROUP_SIZE, (number + 1) * GROUP_SIZE)
                group = [
                    finished(self.tasks[task], answers[r].tolist(), logprobs[r].tolist(), update)
                    for r in rows
                ]
                is_flat = len({session.reward for session in group}) == 1
                if sampling.dynamic and is_flat and num_replaced < sampling.dynamic_limit * NUM_GROUPS:
                    num_replaced += 1
                    continue
                chosen.append(task)
                groups.append(group)
        return chosen[:NUM_GROUPS], groups[:NUM_GROUPS], num_replaced


def _plan(spec: JobSpec, update: int) -> BatchPlan:
    return BatchPlan(
        job_id="toy",
        number=update + 1,
        policy_version=update,
        temperature=1.0,
        algorithm=spec.algorithm,
        overlong_tokens=spec.overlong_tokens,
        overlong_turn_tokens=spec.overlong_turn_tokens,
        judge_markers=JudgeMarkers(end=tuple(encode(JUDGE_END)), on=tuple(encode(THINK))),
    )


def _domains(groups: Sequence[Sequence[FinishedSession]]) -> dict[str, float]:
    """Return, per domain: reward, answer length and how often a session chose to think."""
    found: dict[str, float] = {}
    for domain in {session.domain for group in groups for session in group}:
        own = [session for group in groups for session in group if session.domain == domain]
        thinks = [np.frombuffer(s.nodes[1].token_ids, "<i4")[0] == IDS[THINK] for s in own]
        found[f"{domain}/reward"] = float(np.mean([session.reward for session in own]))
        found[f"{domain}/tokens"] = float(np.mean([session.num_sampled_tokens for session in own]))
        found[f"{domain}/think"] = float(np.mean(thinks))
    return found
