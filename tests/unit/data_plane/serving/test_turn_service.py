"""Repeated and lost requests, without HTTP, a database or an engine: which are one turn, and which are another."""

import asyncio
import datetime
import json
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, cast
from uuid import UUID, uuid4

import msgspec
import numpy as np
import pytest

from seamlessflow.core.job_spec import job_spec_parse
from seamlessflow.core.lifecycle.groups import SessionState
from seamlessflow.core.trajectory.answer_progress import AnswerProgress, FinishReason, TokenChunk
from seamlessflow.core.trajectory.prefix_tree import NodeKind
from seamlessflow.data_plane.dialects.chat.dialect import ChatDialect
from seamlessflow.data_plane.errors import ApiError
from seamlessflow.data_plane.serving.bounds import BoundReached, SessionBounds
from seamlessflow.data_plane.serving.planning import TurnPlanner
from seamlessflow.data_plane.serving.repeats import Marks
from seamlessflow.data_plane.serving.turn_service import TurnService, TurnTimes
from seamlessflow.data_plane.serving.waiting import NoEngineYet
from seamlessflow.data_plane.store.api_keys import key_digest, session_api_key
from seamlessflow.data_plane.store.jobs import JobRow
from seamlessflow.data_plane.store.turns.node_rows import NodeRow, SessionKey
from seamlessflow.data_plane.store.turns.protocol import TurnRefused
from seamlessflow.data_plane.store.turns.sessions import SessionRow
from seamlessflow.data_plane.turns.engines.stall_timer import StallTimer
from seamlessflow.data_plane.turns.engines.turn_wait import NoEngine
from seamlessflow.data_plane.turns.rendering.prompt import AskedPrompt, Prompt, PromptRequest, prompt_make
from seamlessflow.data_plane.turns.rollout_manager import RolloutManager
from seamlessflow.data_plane.turns.trajectory_manager.job_loading import job_load
from seamlessflow.data_plane.turns.trajectory_manager.live import LiveSession
from seamlessflow.data_plane.turns.trajectory_manager.registry import Registry, RegistryLimits
from tests.fakes.memory_turns import MemoryTurns
from tests.fixtures.tiny_text import write_tiny_text

MONTH = datetime.date(2026, 1, 1)
ANSWER = "The answer is 46.<|im_end|>"
MAX_ANSWERS = 2
RESENT = Marks(is_resent=True)


class SteppedManager:
    """Samples `ANSWER` token by token; each token beyond the first two takes a permit, unless `is_free`."""

    def __init__(self, token_ids: bytes) -> None:
        self.num_requests = 0
        self.is_free = False
        self.has_engine = True
        self._token_ids = token_ids

    def why_none(self, _job_id: UUID) -> str | None:
        return None if self.has_engine else "no machine is free"

    async def grow(
        self, progress: AnswerProgress, *_: object, is_streamed: bool
    ) -> AsyncGenerator[TokenChunk, None]:
        if not self.has_engine:
            raise NoEngine("no machine is free")
        self.num_requests += progress.is_unfinished()
        while progress.is_unfinished():
            if not self.is_free and progress.num_tokens == 2:
                await asyncio.Event().wait()
            at = 4 * progress.num_tokens
            is_last = at + 4 == len(self._token_ids)
            ids, logprobs = self._token_ids[at : at + 4], np.zeros(1, dtype="<f4").tobytes()
            piece = TokenChunk(ids, logprobs, (0, 3), FinishReason.STOP if is_last else None)
            progress.add(piece)
            yield piece


class SlowTurns(MemoryTurns):
    """Commits only while `may_commit` is set."""

    may_commit: asyncio.Event
    is_refused = False

    async def commit(self, rows: Sequence[NodeRow]) -> None:
        await self.may_commit.wait()
        if self.is_refused:
            raise TurnRefused("its session is over")
        await super().commit(rows)


class Clocks:
    """Stall timers that are never made durable."""

    def clock_new(self, _key: SessionKey) -> StallTimer:
        return StallTimer()

    async def clock_load(self, _key: SessionKey) -> StallTimer:
        return StallTimer()


class MemoryClient:
    """A `Client` that keeps its answer. `leave` has the effect of a lost connection."""

    def __init__(self, body: dict[str, Any]) -> None:
        self.chunks: list[bytes] = []
        self.has_ended = False
        self._body = json.dumps(body).encode()
        self._calls: list[Callable[[], None]] = []

    async def read(self) -> bytes:
        return self._body

    def release(self) -> None: ...

    def departure(self, call: Callable[[], None]) -> AbstractContextManager[None]:
        @contextmanager
        def listening() -> Iterator[None]:
            self._calls.append(call)
            yield
            self._calls.clear()

        return listening()

    def leave(self) -> None:
        for call in self._calls:
            call()

    async def answer(self, body: bytes, *, ignored: Sequence[str], waited_s: float) -> None:
        await self.write(body, is_last=True)

    async def open_stream(self, content_type: bytes, *, ignored: Sequence[str]) -> None: ...

    async def write(self, chunk: bytes, *, is_last: bool = False) -> None:
        self.chunks.append(chunk)
        self.has_ended = is_last

    @property
    def text(self) -> str:
        raw = b"".join(self.chunks)
        if raw.startswith(b"{"):
            return str(json.loads(raw)["choices"][0]["message"]["content"])
        events = [json.loads(line[6:]) for line in raw.split(b"\n\n") if line.startswith(b"data: {")]
        return "".join(event["choices"][0]["delta"].get("content", "") for event in events)


class World:
    """One session, and what serves it."""

    def __init__(self, folder: Path, *, max_turns: int = 100) -> None:
        self.store = SlowTurns()
        self.store.may_commit = asyncio.Event()
        self.store.may_commit.set()
        job_id, project_id, session_id = uuid4(), uuid4(), uuid4()
        environment = {"name": "external", "max_turns": max_turns}
        spec = job_spec_parse({"name": "tiny", "model": {"source": "model"}, "environment": environment})
        model = write_tiny_text(folder / "model")
        self.store.jobs[job_id] = JobRow(
            job_id, project_id, "tiny", "running", spec.model_dump(mode="json"), model, "", ""
        )
        self._key = session_api_key(session_id)
        self.store.sessions[session_id] = SessionRow(
            session_id, project_id, job_id, uuid4(), MONTH, SessionState.OPEN, key_digest(self._key), None
        )
        self.registry = Registry(self.store, Clocks(), RegistryLimits(), job_load)
        self.is_streamed = False

    async def open(self) -> "World":
        self.session: LiveSession = await self.registry.session_by_key(self._key)
        text = self.session.job.text
        self.manager = SteppedManager(text.encode(ANSWER))

        async def make_prompt(_job_id: UUID, asked: AskedPrompt) -> Prompt:
            await asyncio.sleep(0)  # as a helper process does
            return prompt_make(text, msgspec.json.decode(asked.body, type=PromptRequest))

        self.service = TurnService(
            self.registry,
            TurnPlanner(make_prompt),
            SessionBounds(MAX_ANSWERS, max_tokens=1_000_000),
            cast(RolloutManager, self.manager),
            TurnTimes(engine_wait_s=1.0, keepalive_s=60.0, retry_window_s=60.0),
            is_watched=lambda _: True,
            clock=asyncio.get_running_loop().time,
        )
        return self

    def begin(self, marks: Marks | None = None, **fields: Any) -> "tuple[MemoryClient, asyncio.Task[None]]":
        """Send the request, which is always the same but for `fields`."""
        body = {"messages": [{"role": "user", "content": "12+34?"}], "stream": self.is_streamed, **fields}
        client = MemoryClient(body)
        serving = self.service.serve(self.session, ChatDialect(), marks or Marks(), client)
        return client, asyncio.create_task(serving)

    async def ask(self, marks: Marks | None = None, **fields: Any) -> str:
        self.manager.is_free = True
        client, serving = self.begin(marks, **fields)
        await serving
        assert client.has_ended
        return client.text

    async def begun(self, marks: Marks | None = None) -> "tuple[MemoryClient, asyncio.Task[None]]":
        """Send the request, and return once its answer has two tokens."""
        self.manager.is_free = False
        num_before = self.manager.num_requests
        client, serving = self.begin(marks)
        await until(lambda: self.manager.num_requests > num_before and self._has_tokens)
        return client, serving

    @property
    def _has_tokens(self) -> bool:
        turns = self.registry.turns_growing(self.session.group_id)
        return any(choice.progress.num_tokens == 2 for turn in turns for choice in turn.choices)

    @property
    def num_recorded(self) -> int:
        rows = self.store.rows.get(self.session.key.session_id, {}).values()
        return len({row.facts.turn_id for row in rows if row.node.kind is NodeKind.SAMPLED})


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not is_so():  # noqa: ASYNC110 - of other tasks
            await asyncio.sleep(0)


@pytest.fixture
async def world(tmp_path: Path) -> World:
    return await World(tmp_path).open()


TEXT = ANSWER.removesuffix("<|im_end|>")


@pytest.mark.parametrize("is_streamed", [False, True])
@pytest.mark.parametrize("num_losses", [1, 3])
async def test_a_retry_without_a_mark_is_the_same_turn(
    world: World, is_streamed: bool, num_losses: int
) -> None:
    world.is_streamed = is_streamed
    for _ in range(num_losses):
        client, serving = await world.begun()
        client.leave()
        if num_losses == 1:
            await serving
            assert world.num_recorded == 0

    assert await world.ask() == TEXT
    assert (world.num_recorded, world.session.use.num_turns) == (1, 1)
    assert world.session.use.num_tokens == len(world.session.job.text.encode(ANSWER)) // 4


async def test_an_answer_recorded_but_not_delivered_is_delivered_to_the_repeat(world: World) -> None:
    world.store.may_commit.clear()
    world.manager.is_free = True
    client, serving = world.begin()
    await until(lambda: bool(world.session.turns))
    client.leave()
    world.store.may_commit.set()
    await serving
    assert client.chunks == []

    assert await world.ask() == TEXT
    assert (world.manager.num_requests, world.num_recorded) == (1, 1)
    assert await world.ask() == TEXT
    assert (world.manager.num_requests, world.num_recorded) == (2, 2)


@pytest.mark.parametrize("is_streamed", [False, True])
async def test_a_prompt_whose_answer_arrived_is_sampled_anew(world: World, is_streamed: bool) -> None:
    world.is_streamed = is_streamed
    one_by_one = [await world.ask() for _ in range(3)]
    at_once = await asyncio.gather(world.ask(), world.ask())
    assert [*one_by_one, *at_once] == [TEXT] * 5
    assert (world.manager.num_requests, world.num_recorded) == (5, 5)


async def test_a_loss_among_repeated_samples_costs_none_and_doubles_none(world: World) -> None:
    assert await world.ask() == TEXT
    client, _ = await world.begun()
    client.leave()
    assert await world.ask() == TEXT
    assert world.num_recorded == 2
    assert await world.ask() == TEXT
    assert world.num_recorded == 3


async def test_requests_under_one_key_are_one_turn_and_another_body_is_another(world: World) -> None:
    marks = Marks(idempotency_key="one")
    _, first = await world.begun(marks)
    beside = [asyncio.create_task(world.ask(marks)) for _ in range(2)]
    await asyncio.sleep(0)
    assert world.manager.num_requests == 1
    first.cancel()  # as if its connection broke unnoticed
    assert await asyncio.gather(*beside) == [TEXT] * 2
    assert await world.ask(marks) == TEXT
    assert (world.num_recorded, world.session.use.num_turns) == (1, 1)

    assert await world.ask(marks, messages=[{"role": "user", "content": "and now?"}]) == TEXT
    assert world.num_recorded == 2


async def test_a_request_marked_as_resent_takes_over_the_turn_in_flight(world: World) -> None:
    _, first = await world.begun()
    assert await world.ask(RESENT) == TEXT
    with pytest.raises(ApiError, match="a retry has taken over this turn"):
        await first
    assert await world.ask(RESENT) == TEXT
    assert (world.manager.num_requests, world.num_recorded) == (2, 1), "the last one came from the record"


async def test_a_session_that_is_closed_ends_its_turn_and_takes_no_other(world: World) -> None:
    _, serving = await world.begun()
    world.registry.close(world.session.key.session_id)
    with pytest.raises(ApiError, match="The session was closed"):
        await serving
    with pytest.raises(ApiError, match="The session is closed"):
        await world.ask()
    assert world.num_recorded == 0


@pytest.mark.parametrize("is_streamed", [False, True])
async def test_a_turn_that_cannot_be_recorded_is_no_answer(world: World, is_streamed: bool) -> None:
    world.is_streamed = is_streamed
    world.store.is_refused = True
    world.manager.is_free = True
    client, serving = world.begin()
    if is_streamed:
        await serving
        assert b"could not be recorded" in client.chunks[-1]
    else:
        with pytest.raises(ApiError, match="could not be recorded") as refused:
            await serving
        assert (refused.value.status, refused.value.code) == (503, "not_recorded")
    assert world.registry.live(world.session.key.session_id) is None, "its tree is read back from its rows"


async def test_without_an_engine_a_whole_answer_is_refused_and_its_tokens_are_kept(world: World) -> None:
    client, serving = await world.begun()
    client.leave()
    await serving
    world.manager.has_engine = False
    with pytest.raises(NoEngineYet, match="no machine is free"):
        await world.ask()
    world.manager.has_engine = True
    assert await world.ask() == TEXT
    assert (world.num_recorded, world.session.use.num_turns) == (1, 1)


async def test_turns_sent_at_the_same_time_do_not_pass_the_bound_together(tmp_path: Path) -> None:
    world = await World(tmp_path, max_turns=1).open()
    results = await asyncio.gather(
        *(world.ask(Marks(idempotency_key=str(number))) for number in range(6)), return_exceptions=True
    )
    assert sorted(map(type, results), key=str) == [BoundReached] * 5 + [str]
    assert world.num_recorded == 1


async def test_an_agent_that_leaves_its_turns_cannot_pass_the_bound_by_repeating_them(tmp_path: Path) -> None:
    world = await World(tmp_path, max_turns=1).open()
    client, _ = await world.begun()
    client.leave()
    assert await world.ask() == TEXT
    with pytest.raises(BoundReached, match=r"environment\.max_turns: 1"):
        await world.ask()


async def test_answers_at_the_same_time_are_bounded(world: World) -> None:
    with pytest.raises(BoundReached, match="3 answers") as final:
        await world.ask(n=MAX_ANSWERS + 1)
    assert final.value.headers["x-should-retry"] == "false"

    world.manager.is_free = False
    _, serving = world.begin(n=MAX_ANSWERS)
    await until(lambda: world.session.use.num_open_answers == MAX_ANSWERS)
    with pytest.raises(BoundReached, match="Send the request again") as later:
        await world.ask()
    assert later.value.headers["x-should-retry"] == "true"
    serving.cancel()
    await asyncio.wait([serving])
    assert await world.ask() == TEXT
