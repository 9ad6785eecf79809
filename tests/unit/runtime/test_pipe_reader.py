"""The reader of a pipe gives all bytes, and closes its descriptor once, on both event loops."""

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import uvloop

from seamlessflow.runtime.pipe_reader import READ_BYTES, PipeReader

Run = Callable[[Coroutine[Any, Any, None]], None]
NUM_PIPES = 1000  # closing twice is noticed in nearly every run


@pytest.fixture(params=[asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    chosen: Run = request.param
    return chosen


def test_all_bytes_arrive_in_order_before_the_end(run: Run) -> None:
    async def check() -> None:
        arrived = bytearray()
        read_end, write_end = os.pipe()
        reader = PipeReader(read_end, arrived.extend)
        sent = os.urandom(3 * READ_BYTES + 7)
        writing = asyncio.create_task(asyncio.to_thread(_write_all, write_end, sent))
        await reader.closed.wait()
        await writing
        assert bytes(arrived) == sent

    run(check())


def test_the_wait_for_the_end_is_limited_while_another_process_holds_the_pipe(run: Run) -> None:
    async def check() -> None:
        read_end, write_end = os.pipe()
        reader = PipeReader(read_end, lambda _: None)
        await reader.wait_closed(timeout_s=0.01)
        assert not reader.closed.is_set()
        reader.close()
        reader.close()
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(read_end)
        os.close(write_end)

    run(check())


def test_no_descriptor_of_somebody_else_is_closed_when_pipes_end(run: Run) -> None:
    """A thread takes the lowest free descriptors all the time, as a busy process does."""

    async def check() -> None:
        stopped, lost = threading.Event(), list[OSError]()
        taking = threading.Thread(target=_take_descriptors, args=(stopped, lost))
        taking.start()
        try:
            for _ in range(NUM_PIPES):
                read_end, write_end = os.pipe()
                reader = PipeReader(read_end, lambda _: None)
                os.close(write_end)
                await reader.closed.wait()
        finally:
            stopped.set()
            await asyncio.to_thread(taking.join)
        assert lost == []

    run(check())


def _write_all(write_end: int, data: bytes) -> None:
    with open(write_end, "wb", buffering=0) as pipe:
        while data:
            data = data[pipe.write(data) :]


def _take_descriptors(stopped: threading.Event, lost: list[OSError]) -> None:
    while not stopped.is_set():
        for descriptor in [os.open(os.devnull, os.O_RDONLY) for _ in range(4)]:
            try:
                os.close(descriptor)
            except OSError as error:
                lost.append(error)
