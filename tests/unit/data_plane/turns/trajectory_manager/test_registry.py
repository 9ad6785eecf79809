"""Sessions in memory: read back once, forgotten when idle, rebuilt from their recorded turns."""

import asyncio
import datetime
import tracemalloc
from http import HTTPStatus
from pathlib import Path
from uuid import UUID, uuid4

import numpy as np
import pytest

from seamlessflow.core.job_spec import job_spec_parse
from seamlessflow.core.lifecycle.groups import SessionState
from seamlessflow.core.trajectory.answer_progress import AnswerProgress, FinishReason
from seamlessflow.core.trajectory.prefix_tree import NodeKind
from seamlessflow.data_plane.errors import ApiError
from seamlessflow.data_plane.store.api_keys import key_digest, session_api_key
from seamlessflow.data_plane.store.jobs import JobRow
from seamlessflow.data_plane.store.turns.node_rows import NodeFacts, SessionKey
from seamlessflow.data_plane.store.turns.sessions import SessionRow, StoredSession
from seamlessflow.data_plane.turns.engines.stall_timer import StallTimer
from seamlessflow.data_plane.turns.rendering.answer_text import AnswerText
from seamlessflow.data_plane.turns.trajectory_manager.in_flight import InFlight
from seamlessflow.data_plane.turns.trajectory_manager.job_loading import job_load
from seamlessflow.data_plane.turns.trajectory_manager.live import Choice, LiveSession, Turn
from seamlessflow.data_plane.turns.trajectory_manager.plan import Conversation
from seamlessflow.data_plane.turns.trajectory_manager.registry import Registry, RegistryLimits
from seamlessflow.data_plane.turns.trajectory_manager.turn import recorded_choices, turn_commit
from tests.fakes.memory_turns import MemoryTurns
from tests.fixtures.planned_turns import plan_turn
from tests.fixtures.tiny_text import write_tiny_text

MONTH = datetime.date(2026, 1, 1)
VERSION = 3


class Clocks:
    """Stall timers that nobody makes durable."""

    def clock_new(self, _key: SessionKey) -> StallTimer:
        return StallTimer()

    async def clock_load(self, _key: SessionKey) -> StallTimer:
        return StallTimer()


class SlowTurns(MemoryTurns):
    """Counts how often a session is read, and lets other tasks run meanwhile."""

    num_reads = 0

    async def session(self, session_id: UUID) -> StoredSession | None:
        self.num_reads += 1
        await asyncio.sleep(0)
        return await super().session(session_id)


class World:
    def __init__(self, folder: Path, *, max_sessions: int = 8, max_bytes: int = 1 << 30) -> None:
        self.store = SlowTurns()
        self.reported: list[tuple[UUID, bool]] = []
        limits = RegistryLimits(max_sessions, max_bytes)
        self.registry = Registry(self.store, Clocks(), limits, job_load, report_over=self._report_over)
        self._project_id, self._job_id = uuid4(), uuid4()
        spec = job_spec_parse(
            {"name": "tiny", "model": {"source": "model"}, "environment": {"name": "external"}}
        )
        model = write_tiny_text(folder / "model")
        self.store.jobs[self._job_id] = JobRow(
            self._job_id, self._project_id, "tiny", "running", spec.model_dump(mode="json"), model, "", ""
        )

    def _report_over(self, session_id: UUID, is_resumed: bool) -> None:
        self.reported.append((session_id, is_resumed))

    def session(self) -> str:
        """Add a session that another gateway opened, and return its API key."""
        session_id = uuid4()
        key = session_api_key(session_id)
        self.store.sessions[session_id] = SessionRow(
            session_id,
            self._project_id,
            self._job_id,
            uuid4(),
            MONTH,
            SessionState.OPEN,
            key_digest(key),
            None,
        )
        return key


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def turn_of(session: LiveSession, question: str, answer: str) -> Turn:
    """Make a turn whose answer is complete."""
    text = session.job.text
    plan = plan_turn(session.tree, text, Conversation([{"role": "user", "content": question}], None, {}))
    sampled = text.encode(answer)
    progress = AnswerProgress(
        prompt_ids=plan.prompt_ids,
        max_tokens=64,
        token_ids=bytearray(sampled),
        logprobs=bytearray(np.full(len(sampled) // 4, -0.5, dtype="<f4").tobytes()),
        spans=(0, VERSION),
        finish_reason=FinishReason.STOP,
    )
    said = AnswerText(text, stop=(), tools=None, starts_in_reasoning=False)
    said.push(sampled)
    said.finish()
    return Turn(session, plan, [Choice(0, progress, said)], uuid4(), question.encode(), {}, 0.0)


async def test_requests_that_come_together_read_a_session_once(world: World) -> None:
    key = world.session()

    sessions = await asyncio.gather(*(world.registry.session_by_key(key) for _ in range(5)))

    assert len({id(session) for session in sessions}) == 1
    assert world.store.num_reads == 1


@pytest.mark.parametrize("key", ["", "sfs_", "sfs_nonsense_x", "sfs_0000000000000000000000000c_of-nobody"])
async def test_a_key_that_opens_nothing_is_refused(world: World, key: str) -> None:
    with pytest.raises(ApiError) as refused:
        await world.registry.session_by_key(key)

    assert refused.value.status == HTTPStatus.UNAUTHORIZED


async def test_the_key_of_another_secret_is_refused(world: World) -> None:
    key = world.session()

    with pytest.raises(ApiError):
        await world.registry.session_by_key(key[:-1] + ("a" if key[-1] != "a" else "b"))


async def test_an_idle_session_makes_room_and_comes_back_with_its_turns(tmp_path: Path) -> None:
    world = World(tmp_path, max_sessions=1)
    key = world.session()
    session = await world.registry.session_by_key(key)
    turn = turn_of(session, "12+34?", "46<|im_end|>")
    await turn_commit(turn, world.store, lambda: 1.0)

    await world.registry.session_by_key(world.session())
    again = await world.registry.session_by_key(key)

    assert again is not session
    assert again.tree.nodes == session.tree.nodes
    assert again.turns == {turn.request_digest: turn.turn_id}


async def test_a_session_with_a_turn_in_flight_makes_no_room(tmp_path: Path) -> None:
    world = World(tmp_path, max_sessions=1)
    key = world.session()
    session = await world.registry.session_by_key(key)
    answering = asyncio.create_task(asyncio.sleep(60))
    session.in_flight[b"digest"] = InFlight(answering)

    await world.registry.session_by_key(world.session())

    assert await world.registry.session_by_key(key) is session
    answering.cancel()


async def test_a_committed_turn_is_replayed_from_its_rows(world: World) -> None:
    session = await world.registry.session_by_key(world.session())
    turn = turn_of(session, "12+34?", "46<|im_end|>")
    await turn_commit(turn, world.store, lambda: 1.0)

    (progress,) = await recorded_choices(world.store, session, turn.turn_id)

    (choice,) = turn.choices
    assert (progress.token_ids, progress.logprobs) == (choice.progress.token_ids, choice.progress.logprobs)
    assert (tuple(progress.spans), progress.finish_reason) == ((0, VERSION), FinishReason.STOP)
    assert [row.node.kind for row in await world.store.nodes(session.key)] == [
        NodeKind.ROOT,
        NodeKind.SAMPLED,
    ]


async def test_idle_sessions_make_room_when_their_trees_take_too_much_memory(tmp_path: Path) -> None:
    world = World(tmp_path, max_bytes=1 << 20)
    keys = [world.session() for _ in range(3)]
    sessions = [await world.registry.session_by_key(key) for key in keys]
    for session in sessions:
        grow(session, num_turns=1, num_tokens=60_000)  # 480 kB

    for session in sessions:
        turn = turn_of(session, "12+34?", "46<|im_end|>")
        world.registry.turn_begin(turn)
        world.registry.turn_end(turn)

    assert [world.registry.live(session.key.session_id) is session for session in sessions] == [
        False,
        True,
        True,
    ]
    assert await world.registry.session_by_key(keys[0]) is not sessions[0]
    assert world.registry.live(sessions[1].key.session_id) is sessions[1], "what was read back is small"


async def test_a_session_of_128k_tokens_takes_less_than_4_mb(world: World) -> None:
    session = await world.registry.session_by_key(world.session())
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    grow(session, num_turns=60, num_tokens=128 * 1024 // 60)
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert after - before < 4 << 20
    assert 0.7 < session.num_bytes / (after - before) < 1.5, "what is counted is what it takes"


async def test_a_session_that_is_over_and_not_here_is_told_to_the_others(tmp_path: Path) -> None:
    world = World(tmp_path)
    here = await world.registry.session_by_key(world.session())
    elsewhere = uuid4()

    world.registry.close(here.key.session_id)
    world.registry.close(elsewhere, is_resumed=True)

    assert world.reported == [(elsewhere, True)]


def grow(session: LiveSession, *, num_turns: int, num_tokens: int) -> None:
    """Add turns to a session's tree; of the tokens of each, half are sampled."""
    parent: int | None = None
    for number in range(num_turns):
        for kind in (NodeKind.PROMPT if parent is not None else NodeKind.ROOT, NodeKind.SAMPLED):
            is_sampled = kind is NodeKind.SAMPLED
            ids = np.full(num_tokens // 2, number, dtype="<i4").tobytes()
            turn_id = uuid4()
            session.add_node(
                parent=parent,
                kind=kind,
                token_ids=ids,
                facts=NodeFacts([{"role": "user", "content": "x" * num_tokens}], turn_id),
                digests=(turn_id.bytes,),
                logprobs=np.zeros(num_tokens // 2, dtype="<f4").tobytes() if is_sampled else b"",
                spans=(0, VERSION) if is_sampled else (),
            )
            parent = len(session.tree.nodes) - 1
        session.turns[turn_id.bytes + turn_id.bytes] = turn_id
