"""Prompts follow one another in the pipes of helper processes, and none of them pays for another."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from http import HTTPStatus
from pathlib import Path

import psutil
import pytest
import uvloop

from seamlessflow.data_plane.errors import ApiError
from seamlessflow.data_plane.turns.rendering.helper_process import MAX_UNDER_WAY, HelperProcess, Work
from seamlessflow.data_plane.turns.rendering.helpers import HelperLimits, PromptHelpers, PromptRefused
from seamlessflow.data_plane.turns.rendering.model_text import model_text_load
from seamlessflow.data_plane.turns.rendering.prompt import Prompt, PromptRequest, asked_prompt, prompt_make
from tests.fixtures.tiny_text import TEMPLATE, write_tiny_text

SLOW = "{%- for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor -%}"
GREEDY = "{%- set big = ('x' * 3000000000) -%}"
LIMIT_S = 3.0
HOSTILE = (
    "{%- if messages[0].content == 'slow' %}" + SLOW + "{% endif -%}"
    "{%- if messages[0].content == 'greedy' %}" + GREEDY + "{% endif -%}"
)

Ask = Callable[..., "asyncio.Task[Prompt]"]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    write_tiny_text(tmp_path / "model", template=HOSTILE + TEMPLATE)
    write_tiny_text(tmp_path / "harmless")
    return tmp_path / "model"


def request(model: Path, content: str) -> PromptRequest:
    return PromptRequest(str(model), [{"role": "user", "content": content}], None, {}, (), 1000)


@asynccontextmanager
async def helpers_running(model: Path, *, num_helpers: int) -> AsyncIterator[Ask]:
    helpers = PromptHelpers(HelperLimits(num_helpers, cpu_s=LIMIT_S, memory_mb=512))
    tasks = helpers.start()

    def ask(content: str, job: str = "job") -> "asyncio.Task[Prompt]":
        return asyncio.create_task(helpers.prompt(job, asked_prompt(request(model, content))))

    try:
        await ask("begin")  # the first helper is up
        yield ask
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


def expected(model: Path, content: str) -> bytes:
    """Return what a template makes that does not even have the hostile parts."""
    harmless = model.with_name("harmless")
    return prompt_make(model_text_load(str(harmless)), request(harmless, content)).new_ids


def helper_pids() -> list[int]:
    return [child.pid for child in psutil.Process().children() if _is_helper(child)]


def _is_helper(process: psutil.Process) -> bool:
    try:
        return "rendering.helper" in " ".join(process.cmdline())
    except psutil.NoSuchProcess:  # or a zombie
        return False


@pytest.mark.parametrize("num_helpers", [1, 2])
async def test_each_of_many_requests_at_once_gets_its_own_prompt(model: Path, num_helpers: int) -> None:
    async with helpers_running(model, num_helpers=num_helpers) as ask:
        asked = {f"What is {number}?": ask(f"What is {number}?") for number in range(5 * MAX_UNDER_WAY)}
        assert {content: (await task).new_ids for content, task in asked.items()} == {
            content: expected(model, content) for content in asked
        }


async def test_what_waits_behind_a_slow_prompt_is_made_by_another_helper(model: Path) -> None:
    async with helpers_running(model, num_helpers=2) as ask:
        slow = ask("slow", "hostile")
        behind = [ask(f"What is {number}?") for number in range(MAX_UNDER_WAY)]
        for number, task in enumerate(behind):
            assert (await task).new_ids == expected(model, f"What is {number}?")
        assert not slow.done()
        with pytest.raises(PromptRefused) as refusal:
            await slow
        assert (refusal.value.status, refusal.value.code) == (
            HTTPStatus.UNPROCESSABLE_ENTITY,
            "template_too_slow",
        )


@pytest.mark.parametrize("content, code", [("slow", "template_too_slow"), ("greedy", "out_of_memory")])
async def test_with_one_helper_those_behind_a_prompt_beyond_its_limit_only_wait(
    model: Path, content: str, code: str
) -> None:
    async with helpers_running(model, num_helpers=1) as ask:
        hostile, *behind = ask(content), ask("1"), ask("2", "other")
        with pytest.raises(PromptRefused) as refusal:
            await hostile
        assert refusal.value.code == code
        assert [(await task).new_ids for task in behind] == [expected(model, "1"), expected(model, "2")]


async def test_a_killed_helper_costs_nobody_a_prompt_but_one_that_kills_helpers(model: Path) -> None:
    async with helpers_running(model, num_helpers=1) as ask:
        (pid,) = helper_pids()
        os.kill(pid, signal.SIGSTOP)
        asked = {content: ask(content) for content in ("1", "2", "3")}
        left = ask("4")
        await asyncio.sleep(0)
        left.cancel()
        os.kill(pid, signal.SIGKILL)
        for content, task in asked.items():
            assert (await task).new_ids == expected(model, content)
        assert pid not in helper_pids()


async def test_a_helper_that_cannot_be_started_is_said_so_and_tried_again(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with helpers_running(model, num_helpers=1) as ask:
        (pid,) = helper_pids()
        with monkeypatch.context() as patch:
            patch.setattr("sys.executable", "/no/such/python")
            os.kill(pid, signal.SIGKILL)
            while helper_pids():  # noqa: ASYNC110 - another process
                await asyncio.sleep(0.01)
            with pytest.raises(ApiError) as refusal:
                await ask("1")
            assert refusal.value.status == HTTPStatus.SERVICE_UNAVAILABLE
        assert (await ask("1")).new_ids == expected(model, "1")


async def test_helpers_end_with_the_task_that_keeps_them(model: Path) -> None:
    async with helpers_running(model, num_helpers=1) as ask:
        await ask("1")
        processes = [psutil.Process(pid) for pid in helper_pids()]
        assert processes
    _, alive = await asyncio.to_thread(psutil.wait_procs, processes, timeout=20)
    assert alive == []


def test_a_prompt_for_a_helper_whose_pipe_has_just_closed_is_left_for_another(model: Path) -> None:
    async def check() -> None:
        gone = asyncio.Event()
        process = HelperProcess(lambda *_: None, lambda _: gone.set())
        await process.start(512)
        os.kill(process.pid, signal.SIGSTOP)  # its end comes after the prompt
        process._stdin.close()
        await asyncio.sleep(0.01)  # the loop closes the pipe
        work = Work("job", asked_prompt(request(model, "1")), asyncio.get_running_loop().create_future())
        try:
            process.send(work)
        finally:
            os.kill(process.pid, signal.SIGKILL)
        await gone.wait()
        assert list(process.under_way) == [work]
        await process.ended()

    uvloop.run(check())  # the gateway's loop, which raises for bytes that are written to a closed pipe
