"""What is kept of a session's output: its head and tail, whole lines, and nowhere its key; and when it is sent."""

import asyncio
import contextlib
import io
import logging
from typing import Any
from uuid import UUID

import pytest

from seamlessflow.core.environment.episodes import Outcome, PolicyEndpoint, Task
from seamlessflow.core.environment.output import output_stream
from seamlessflow.core.protocol.data_plane import SessionFinish
from seamlessflow.core.protocol.worker import SessionLogs
from seamlessflow_workers.agents import session_logs
from seamlessflow_workers.agents.episode import run_episode
from seamlessflow_workers.agents.printed import PrintedBySessions
from seamlessflow_workers.agents.session_log import MAX_LINE_BYTES, SessionLogBuffer
from seamlessflow_workers.agents.session_logs import SessionLogSender
from seamlessflow_workers.clients.http import RequestRefused, ServerUnavailable

SESSION = UUID(int=1)
KEY = "sfs_abc123_secret"
POLICY = PolicyEndpoint(base_url="http://gateway/v1", api_key=KEY)


def buffer_of(*chunks: bytes, limit_bytes: int = 200) -> SessionLogBuffer:
    buffer = SessionLogBuffer(SESSION, key=KEY, limit_bytes=limit_bytes)
    for chunk in chunks:
        buffer.write(chunk)
    buffer.complete()
    return buffer


def test_a_long_log_keeps_its_head_and_its_tail() -> None:
    lines = [f"line {number:04}\n".encode() for number in range(1000)]
    log = buffer_of(*lines, limit_bytes=40).log()
    assert (log.head, log.tail, log.end) == (b"".join(lines)[:20], b"".join(lines)[-20:], 10_000)


@pytest.mark.parametrize("cut", range(len(KEY) + 1))
def test_the_key_of_the_session_is_hidden_wherever_the_output_is_cut(cut: int) -> None:
    text = f"OPENAI_API_KEY={KEY}\n".encode()
    place = text.index(KEY.encode()) + cut
    assert buffer_of(text[:place], text[place:]).log().head == b"OPENAI_API_KEY=[key of the session]\n"


@pytest.mark.parametrize("cut", range(len(KEY) + 1))
def test_the_key_is_hidden_in_a_line_without_end(cut: int) -> None:
    text = b"x" * (MAX_LINE_BYTES - cut) + KEY.encode() + b"y" * MAX_LINE_BYTES
    chunks = [text[at : at + 512] for at in range(0, len(text), 512)]
    log = buffer_of(*chunks, limit_bytes=1 << 20).log()
    assert KEY.encode() not in log.head + log.tail
    assert (log.head + log.tail).count(b"[key of the session]") == 1


def test_lines_of_two_streams_do_not_mix() -> None:
    buffer = SessionLogBuffer(SESSION, key=KEY, limit_bytes=1000)
    output, errors = buffer.stream(), buffer.stream()
    output(b"thin")
    errors(b"Traceback\n")
    output(b"king\n")
    errors(b"no newline")
    buffer.complete()
    assert buffer.log().head == b"Traceback\nthinking\nno newline"


class ControlPlane:
    """Keeps what is sent; refuses or fails as often as told."""

    def __init__(self, *errors: Exception) -> None:
        self.sent: list[SessionLogs] = []
        self._errors = list(errors)

    async def send(self, logs: SessionLogs) -> None:
        if self._errors:
            raise self._errors.pop(0)
        self.sent.append(logs)

    @property
    def texts(self) -> list[bytes]:
        return [log.head + log.tail for logs in self.sent for log in logs.logs]


async def session_of(sender: SessionLogSender, text: bytes, *, number: int = 1) -> None:
    with sender.open(UUID(int=number), key=KEY) as output:
        assert output is not None
        output.write(text)


async def test_a_log_is_sent_once_its_session_has_ended() -> None:
    platform = ControlPlane()
    async with SessionLogSender(platform.send, limit_bytes=100) as sender:
        await session_of(sender, b"hello\n")
        await session_of(sender, b"", number=2)
    assert platform.texts == [b"hello\n"]


async def test_a_session_that_still_runs_is_sent_ever_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    platform, now_s = ControlPlane(), 1000.0
    monkeypatch.setattr("seamlessflow_workers.agents.session_logs.time.monotonic", lambda: now_s)
    sender = SessionLogSender(platform.send, limit_bytes=100)
    with sender.open(SESSION, key=KEY) as output:
        assert output is not None
        for second in range(3600):
            now_s = 1000.0 + second
            output.write(b"x\n")
            await sender.send_due()
    assert 20 < len(platform.sent) < 40


async def test_a_log_waits_for_a_control_plane_that_is_away() -> None:
    platform = ControlPlane(ServerUnavailable("away"))
    sender = SessionLogSender(platform.send, limit_bytes=100)
    await session_of(sender, b"hello\n")
    with pytest.raises(ServerUnavailable):
        await sender.send_due()
    await sender.send_due()
    await sender.send_due()
    assert platform.texts == [b"hello\n"]


async def test_a_log_that_is_refused_is_dropped() -> None:
    platform = ControlPlane(RequestRefused("an older control plane"))
    sender = SessionLogSender(platform.send, limit_bytes=100)
    await session_of(sender, b"hello\n")
    await sender.send_due()
    await sender.send_due()
    assert platform.texts == []


async def test_what_waits_is_bounded_and_the_newest_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_logs, "MAX_WAITING_BYTES", 25)
    platform = ControlPlane()
    sender = SessionLogSender(platform.send, limit_bytes=100)
    for number in range(5):
        await session_of(sender, f"session {number}\n".encode(), number=number)
    await sender.send_due()
    assert platform.texts == [b"session 3\n", b"session 4\n"]


async def test_requests_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_logs, "MAX_REQUEST_BYTES", 25)
    platform = ControlPlane()
    sender = SessionLogSender(platform.send, limit_bytes=100)
    for number in range(5):
        await session_of(sender, b"ten bytes\n", number=number)
    await sender.send_due()
    assert [len(logs.logs) for logs in platform.sent] == [2, 2, 1]


async def never_held(_session_id: UUID) -> float:
    return 0.0


class Printing:
    """An environment in this process, which prints, logs, hands on and fails."""

    async def run(self, _task: Task, policy: PolicyEndpoint) -> Outcome:
        print("from print")
        await asyncio.to_thread(print, "from a thread")
        logging.getLogger("an.environment").warning("from a logger")
        output_stream()(b"from elsewhere\n")
        raise RuntimeError(f"the key is {policy.api_key}")

    async def close(self) -> None: ...


async def printed_by_an_environment(monkeypatch: pytest.MonkeyPatch) -> tuple[SessionFinish, str, str]:
    """Return how the session ended, its log, and what was printed in all."""
    stream = io.StringIO()
    printed: Any = PrintedBySessions(stream)
    monkeypatch.setattr(logging.getLogger("an.environment"), "handlers", [logging.StreamHandler(printed)])
    buffer = SessionLogBuffer(SESSION, key=KEY, limit_bytes=100_000)
    with contextlib.redirect_stdout(printed):
        finish = await run_episode(
            Printing(), {}, POLICY, session_id=SESSION, timeout_s=30.0, waited_s=never_held, output=buffer
        )
        print("after the session")
    buffer.complete()
    return finish, buffer.log().head.decode(), stream.getvalue()


async def test_what_an_environment_prints_belongs_to_its_session(monkeypatch: pytest.MonkeyPatch) -> None:
    _, log, printed = await printed_by_an_environment(monkeypatch)
    for said in ("from print\n", "from a thread\n", "from a logger\n", "from elsewhere\n"):
        assert said in log
    assert log.splitlines()[-1] == "RuntimeError: the key is [key of the session]"
    assert "after the session" not in log
    assert "after the session" in printed


async def test_a_failure_does_not_show_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    finish, _, _ = await printed_by_an_environment(monkeypatch)
    assert finish.failure == "RuntimeError: the key is [key of the session]"
