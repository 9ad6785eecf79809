"""Publishes the new tokens of growing answers, ten times a second, for the groups that viewers watch.

It reads the packed tokens of growing turns in place and publishes one delta per group and round, with at most
MAX_TOKENS_PER_ROUND tokens, numbered by the events broker. Invariants: a turn never waits for this; nothing is queued
(tokens that the broker did not take are part of the next round); nothing published here is a record.
"""

import asyncio
import logging
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from uuid import UUID

import msgspec
import numpy as np
import redis.asyncio
from redis.exceptions import RedisError

from seamlessflow.core.protocol.live_events import (
    APPEND,
    ASKED_KEY,
    GROUP_STREAM,
    WATCHED,
    WATCHED_KEY,
    GrowingAnswer,
    GrowingPrompt,
    append_arguments,
    append_keys,
    group_topic,
    watched_decode,
)
from seamlessflow.core.trajectory.prefix_tree import TOKEN_BYTES, NodeKind
from seamlessflow.core.types.ids import IdKind, show_id
from seamlessflow.data_plane.store.turns.node_rows import prompt_digest, prompt_id
from seamlessflow.data_plane.turns.trajectory_manager.live import Choice, Turn
from seamlessflow.data_plane.turns.trajectory_manager.registry import Registry

log = logging.getLogger(__name__)

ROUND_S = 0.1
LOOK_EVERY_ROUNDS = 4  # how often the list of watched groups is read
RETRY_S = 1.0
TIMEOUT_S = 2.0
MAX_TOKENS_PER_ROUND = 16_384


@dataclass(frozen=True, slots=True)
class _PublishedAnswer:
    """How much of an answer has been published."""

    turn: Turn
    num_tokens: int
    num_handovers: int


@dataclass(slots=True)
class _PublishedGroup:
    """The answers of one group as published since its last snapshot."""

    num_asked: int
    answers: dict[tuple[UUID, int], _PublishedAnswer] = field(default_factory=dict)


class Watched:
    """The groups whose forests viewers watch, as the broker last reported them; at most one poll old.

    The progress feed sets them. Turns ask, because a watched answer is streamed by its engine.
    """

    def __init__(self) -> None:
        self._asked: Mapping[UUID, int] = {}

    @property
    def groups(self) -> Mapping[UUID, int]:
        """Return how many snapshots of each group were given; when the number rises, a new viewer lacks the answers."""
        return self._asked

    def set(self, asked: Mapping[UUID, int]) -> None:
        self._asked = asked

    def is_watched(self, group_id: UUID) -> bool:
        return group_id in self._asked


class ProgressFeed:
    def __init__(self, events_url: str, registry: Registry, watched: Watched) -> None:
        self._registry = registry
        self._watched = watched
        self._published: dict[UUID, _PublishedGroup] = {}
        # We time each exchange ourselves: redis-py's own timeout sends under `asyncio.wait_for`, which before Python
        # 3.12 loses a cancellation that arrives while bytes are sent, and the gateway would wait for this task forever.
        self._broker: redis.asyncio.Redis = redis.asyncio.Redis.from_url(
            events_url, socket_timeout=None, socket_connect_timeout=TIMEOUT_S
        )
        self._append = self._broker.register_script(APPEND)
        self._look = self._broker.register_script(WATCHED)
        self._epoch = secrets.token_hex(8)  # used if the broker has no epoch yet

    async def run(self) -> None:
        """Publish until cancelled."""
        num_rounds, is_away = 0, False
        try:
            while True:
                try:
                    if num_rounds % LOOK_EVERY_ROUNDS == 0:
                        async with asyncio.timeout(TIMEOUT_S):
                            self._see(watched_decode(await self._look(keys=[WATCHED_KEY, ASKED_KEY])))
                    for group_id in self._published:
                        async with asyncio.timeout(TIMEOUT_S):
                            await self._publish(group_id)
                    num_rounds += 1
                    is_away = False
                except (RedisError, OSError) as error:
                    if not is_away:
                        log.warning(
                            "the events broker is unreachable, growing answers are not shown: %s", error
                        )
                    is_away = True
                    num_rounds = 0
                await asyncio.sleep(RETRY_S if is_away else ROUND_S)
        finally:
            await self._broker.aclose()

    def _see(self, watched: Mapping[UUID, int]) -> None:
        """Start again for groups with a new snapshot, and forget groups that have no viewers any more."""
        self._watched.set(watched)
        self._published = {
            group_id: published
            if (published := self._published.get(group_id)) is not None and published.num_asked == num_asked
            else _PublishedGroup(num_asked)
            for group_id, num_asked in watched.items()
        }

    async def _publish(self, group_id: UUID) -> None:
        published = self._published[group_id].answers
        gains, now = group_gains(self._registry.turns_growing(group_id), published)
        if not gains:
            return
        topic = group_topic(group_id)
        arguments = append_arguments(
            epoch=self._epoch,
            limits=GROUP_STREAM,
            at=time.time_ns() // 1_000_000,
            data=msgspec.json.encode({"growing": gains}),
            topic=topic,
        )
        await self._append(keys=append_keys(topic), args=arguments)
        self._published[group_id].answers = now


def group_gains(
    turns: list[Turn], published: Mapping[tuple[UUID, int], _PublishedAnswer]
) -> tuple[list[GrowingAnswer], dict[tuple[UUID, int], _PublishedAnswer]]:
    """Return the gains to publish of one group, and its published answers once they are sent."""
    gains: list[GrowingAnswer] = []
    now: dict[tuple[UUID, int], _PublishedAnswer] = {}
    num_left = MAX_TOKENS_PER_ROUND
    for turn in turns:
        for choice in turn.choices:
            key = (turn.turn_id, choice.index)
            known = published.get(key)
            gain = _gain(turn, choice, known, num_left)
            if not _is_news(gain, known):
                now[key] = known or _PublishedAnswer(turn, 0, 0)
                continue
            num_sent = len(gain.token_ids) // TOKEN_BYTES
            num_left -= num_sent
            gains.append(gain)
            now[key] = _PublishedAnswer(turn, gain.start + num_sent, len(gain.handover_at))
    gains += [_end(key[1], known, num_left) for key, known in published.items() if key not in now]
    return gains, now


def _is_news(gain: GrowingAnswer, known: _PublishedAnswer | None) -> bool:
    return known is None or bool(gain.token_ids) or len(gain.handover_at) != known.num_handovers


def _gain(turn: Turn, choice: Choice, known: _PublishedAnswer | None, num_left: int) -> GrowingAnswer:
    """Return at most `num_left` tokens that follow those already published."""
    progress = choice.progress
    # A stop string may have removed tokens that were published already.
    start = min(known.num_tokens, progress.num_tokens) if known else 0
    end = min(progress.num_tokens, start + max(num_left, 0))
    prompt = turn.session.tree.prompt_child(turn.plan.parent, turn.plan.digests, turn.plan.context)
    cut = slice(start * TOKEN_BYTES, end * TOKEN_BYTES)
    logprobs = np.frombuffer(bytes(progress.logprobs[cut]), dtype="<f4").astype("<f2")
    return GrowingAnswer(
        session=show_id(IdKind.SESSION, turn.session.key.session_id),
        turn=str(turn.turn_id),
        choice=choice.index,
        start=start,
        parent=turn.plan.parent,
        prompt_index=prompt.index if prompt is not None else None,
        prompt=_prompt(turn) if start == 0 and prompt is None else None,
        token_ids=bytes(progress.token_ids[cut]),
        logprobs=logprobs.tobytes(),
        spans=list(progress.spans),
        handover_at=list(progress.handover_at),
    )


def _end(choice: int, known: _PublishedAnswer, num_left: int) -> GrowingAnswer:
    """Return the end of an answer that grows no more (recorded, kept for a retry, or dropped), with its last tokens."""
    turn = known.turn
    gain = _gain(turn, turn.choices[choice], known, num_left)
    return msgspec.structs.replace(gain, is_over=True, is_recorded=turn.request_digest in turn.session.turns)


def _prompt(turn: Turn) -> GrowingPrompt:
    plan = turn.plan
    is_root = plan.kind is NodeKind.ROOT
    identity = prompt_id(turn.session.key.job_id, prompt_digest(plan.new_ids)) if is_root else None
    return GrowingPrompt(
        kind=plan.kind.name.lower(),
        num_tokens=len(plan.new_ids) // TOKEN_BYTES,
        messages=[dict(message) for message in plan.messages],
        prompt=int.from_bytes(identity.bytes[:4], "big", signed=True) if identity is not None else 0,
    )
