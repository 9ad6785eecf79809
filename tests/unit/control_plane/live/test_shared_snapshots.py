"""Shared snapshots: a socket that listens before it asks misses no delta, in whatever order
look-ups and arrivals happen."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seamlessflow.control_plane.live.frames import Frame
from seamlessflow.control_plane.live.sharing import SharedSnapshots
from seamlessflow.core.protocol.live_rows import FrameKind

TOPIC = "machines"


@dataclass
class World:
    """A broker that numbers deltas and passes them to listeners, and rows of which snapshots are
    taken.

    Delta n sets row n; its row exists before the delta is published, as with the feeder. A look-up
    reads the number, waits `gap` turns of the event loop, then reads the rows.
    """

    gap: int
    seq: int = 0
    rows: set[int] = field(default_factory=set)
    mailboxes: list[list[int]] = field(default_factory=list)
    num_lookups: int = 0

    def say(self) -> None:
        self.rows.add(self.seq + 1)
        self.seq += 1
        for mailbox in self.mailboxes:
            mailbox.append(self.seq)

    async def take(self, topic: str) -> Frame:
        self.num_lookups += 1
        seq = self.seq
        await turns(self.gap)
        data = {"rows": sorted(self.rows)}
        return Frame(topic=topic, epoch="e", seq=seq, kind=FrameKind.SNAPSHOT, at=0, data=data)


async def turns(number: int) -> None:
    for _ in range(number):
        await asyncio.sleep(0)


async def sockets_come(world: World, shared: SharedSnapshots, arrivals: Sequence[int]) -> None:
    """Each socket arrives at its turn, listens, asks and follows; deltas are published all the
    while, and once more afterwards."""

    async def follow(arrival: int) -> tuple[Frame, list[int]]:
        await turns(arrival)
        mailbox: list[int] = []
        world.mailboxes.append(mailbox)
        return await shared.get(TOPIC), mailbox

    async def speak() -> None:
        while True:
            world.say()
            await asyncio.sleep(0)

    speaker = asyncio.create_task(speak())
    got = await asyncio.gather(*map(follow, arrivals))
    speaker.cancel()
    await asyncio.wait([speaker])
    for frame, mailbox in got:
        follows = [seq for seq in mailbox if seq > frame.seq]
        # Snapshot and deltas together tell everything, each number once.
        assert follows == list(range(frame.seq + 1, world.seq + 1))
        assert isinstance(frame.data, dict)
        assert set(range(1, frame.seq + 1)) <= set(frame.data["rows"])


@settings(deadline=None)
@given(gap=st.integers(0, 12), arrivals=st.lists(st.integers(0, 40), min_size=1, max_size=30))
def test_no_delta_is_missing_between_a_shared_snapshot_and_the_following_deltas(
    gap: int, arrivals: list[int]
) -> None:
    world = World(gap)
    asyncio.run(sockets_come(world, SharedSnapshots(world.take), arrivals))
    assert world.num_lookups <= len(arrivals)


async def test_sockets_that_arrive_together_share_one_look_up() -> None:
    world = World(gap=5)
    shared = SharedSnapshots(world.take)
    frames = await asyncio.gather(*(shared.get(TOPIC) for _ in range(200)))
    assert world.num_lookups == 1
    assert len({id(frame) for frame in frames}) == 1


async def test_sockets_that_arrive_during_a_look_up_share_the_next() -> None:
    world = World(gap=5)
    shared = SharedSnapshots(world.take)
    first = asyncio.create_task(shared.get(TOPIC))
    await turns(3)
    world.say()
    late = await asyncio.gather(*(shared.get(TOPIC) for _ in range(50)))
    assert (await first).seq == 0
    assert {frame.seq for frame in late} == {1}
    assert world.num_lookups == 2


async def test_topics_do_not_wait_for_one_another() -> None:
    world = World(gap=5)
    shared = SharedSnapshots(world.take)
    topics = ["machines", "job:a", "job:b"]
    frames = await asyncio.gather(*map(shared.get, topics))
    assert [frame.topic for frame in frames] == topics


async def test_a_caller_that_leaves_does_not_end_the_look_up_for_the_others() -> None:
    world = World(gap=5)
    shared = SharedSnapshots(world.take)
    leaves, stays = asyncio.create_task(shared.get(TOPIC)), asyncio.create_task(shared.get(TOPIC))
    await turns(3)
    leaves.cancel()
    assert (await stays).topic == TOPIC
    assert leaves.cancelled()


async def test_each_caller_gets_the_error_of_a_failed_look_up_and_the_next_look_up_is_new() -> None:
    errors = [LookupError("no such job")]
    world = World(gap=0)

    async def take(topic: str) -> Frame:
        await turns(2)
        if errors:
            raise errors.pop()
        return await world.take(topic)

    shared = SharedSnapshots(take)
    failed = await asyncio.gather(*(shared.get(TOPIC) for _ in range(3)), return_exceptions=True)
    assert [str(error) for error in failed] == ["no such job"] * 3
    assert (await shared.get(TOPIC)).topic == TOPIC


async def test_closing_ends_running_and_waiting_look_ups() -> None:
    world = World(gap=1_000_000)
    shared = SharedSnapshots(world.take)
    callers = [asyncio.create_task(shared.get(TOPIC))]
    await turns(3)
    callers.append(asyncio.create_task(shared.get(TOPIC)))
    await turns(3)
    await shared.close()
    for caller in callers:
        with pytest.raises(asyncio.CancelledError):
            await caller
