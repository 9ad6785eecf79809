"""Compares two ways to join a request to a long session: by its tree, and by rendering and
tokenising everything.

It takes a folder with a tokenizer and a template, and the length of the conversation, and returns
two rows. The gateway's own planner builds the tree turn by turn, so the measured request meets the
same tree as in the gateway.
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from seamlessflow.core.trajectory.messages import message_digests
from seamlessflow.core.trajectory.prefix_tree import Drift, Node, NodeKind, PrefixTree
from seamlessflow.data_plane.turns.rendering.chat_template import template_messages
from seamlessflow.data_plane.turns.rendering.model_text import ModelText, model_text_load
from seamlessflow.data_plane.turns.trajectory_manager.plan import Conversation, TurnPlan
from tests.benchmarks.measuring import interleaved
from tests.benchmarks.report import Row
from tests.fixtures.planned_turns import plan_turn

BASELINE = "whole conversation rendered and tokenised"
NUM_REQUESTS = 50  # per repeat
PROMPT_SHARE = 0.3

Message = dict[str, Any]


async def measure(folder: Path, *, num_turns: int, num_tokens: int) -> list[Row]:
    text = model_text_load(str(folder))
    tree, messages = _session(text, num_turns=num_turns, num_tokens=num_tokens)
    conversation = Conversation(messages, None, {})
    plan = plan_turn(tree, text, conversation)
    assert plan.drift is Drift.CLEAN
    context = tree.nodes[0].context
    samples = await interleaved(
        {
            "plan": _timed(lambda: plan_turn(tree, text, conversation)),
            "match": _timed(lambda: tree.match(message_digests(messages), context)),
            "whole": _timed(lambda: _whole(text, messages)),
        }
    )
    request = f"turn {num_turns} of a session of {plan.num_prompt_tokens:,} tokens"
    names = {
        "plan": f"{request}: matched, proven, tokenised",
        "match": f"{request}: matched in the tree only",
    }
    return [
        Row(name, "µs", samples[side]["us"], BASELINE, samples["whole"]["us"]) for side, name in names.items()
    ]


def _session(text: ModelText, *, num_turns: int, num_tokens: int) -> tuple[PrefixTree, list[Message]]:
    """Return the tree of all turns except the last, and the messages of the last request."""
    tree, messages = PrefixTree(), [_message(text, "user", 0, num_tokens // num_turns)]
    for number in range(1, num_turns):
        plan = plan_turn(tree, text, Conversation(messages, None, {}))
        _add(tree, plan.parent, plan.kind, plan.new_ids, plan.digests, plan)
        said = _message(text, "assistant", number, num_tokens // num_turns)
        token_ids = text.encode(said["content"] + text.end_texts[0])
        _add(tree, len(tree.nodes) - 1, NodeKind.SAMPLED, token_ids, message_digests([said]), plan)
        messages = [*messages, said, _message(text, "user", number, num_tokens // num_turns)]
    return tree, messages


def _message(text: ModelText, role: str, number: int, tokens_per_turn: int) -> Message:
    """Return a message whose length is about its role's share of a turn's tokens."""
    share = PROMPT_SHARE if role == "user" else 1 - PROMPT_SHARE
    sentence = f"In step {number} the sum of 12 and {number} is wanted. "
    sentence_tokens = len(text.encode(sentence)) // 4
    return {
        "role": role,
        "content": (sentence * max(1, round(tokens_per_turn * share / sentence_tokens))).strip(),
    }


def _add(
    tree: PrefixTree,
    parent: int | None,
    kind: NodeKind,
    token_ids: bytes,
    digests: tuple[bytes, ...],
    plan: TurnPlan,
) -> None:
    before = tree.nodes[parent].num_path_tokens if parent is not None else 0
    context = plan.context if kind is NodeKind.ROOT else b""
    num_path_tokens = before + len(token_ids) // 4
    tree.add(Node(len(tree.nodes), parent, kind, token_ids, digests, num_path_tokens, context=context))


def _whole(text: ModelText, messages: list[Message]) -> bytes:
    shown = template_messages(messages)
    return text.encode(text.template.render(shown, tools=None, arguments={}, add_generation_prompt=True))


def _timed(call: Callable[[], object]) -> Callable[[], Any]:
    async def measure_once() -> dict[str, float]:
        started_s = time.perf_counter()
        for _ in range(NUM_REQUESTS):
            call()
        return {"us": (time.perf_counter() - started_s) / NUM_REQUESTS * 1e6}

    return measure_once
