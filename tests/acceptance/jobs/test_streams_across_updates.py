"""An agent's stream stays one stream while weights are updated and while its machine switches to
training.

The agents run here: plain `openai` clients of an `external` job. Short sessions feed the trainer,
and long streams continue across the updates that follow. What was stored is then compared with what
was streamed, and recomputed under the weights of each version.
"""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import torch
from openai import AsyncOpenAI
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM
from transformers.utils import logging as transformers_logging

from seamlessflow.client import Client
from seamlessflow.core.types.ids import IdKind, parse_id
from tests.acceptance.outside_agents import MAX_TOKENS, external_spec, feed, session_open
from tests.acceptance.platform_process import PlatformProcess, eventually

NUM_STREAMS = 6
MIN_UPDATES = 4
MAX_LOGPROB_DIFFERENCE = 1e-3


@dataclass(frozen=True, slots=True)
class Streamed:
    """What one client saw."""

    session: str
    text: str
    num_completion_tokens: int
    finish_reason: str
    largest_gap_s: float


@pytest.fixture(scope="module")
def streamed_job(platform: PlatformProcess, model_root: Path) -> Iterator[tuple[str, list[Streamed]]]:
    """A job that short sessions train for some updates while long streams run all the time."""
    with platform.client() as client:
        job_id = client.job_submit(external_spec(model_root))["id"]
        eventually(
            lambda: client.job_get(job_id)["state"] == "running", timeout_s=120, what="the job's start"
        )
        streams = asyncio.run(drive(platform, client, job_id))
        yield job_id, streams
        if client.job_get(job_id)["state"] not in ("completed", "cancelled"):
            client.job_edit(job_id, "cancel")
        eventually(
            lambda: client.job_get(job_id)["state"] in ("completed", "cancelled"),
            timeout_s=60,
            what="the end",
        )


def test_each_stream_is_complete_and_its_usage_is_correct(streamed_job: tuple[str, list[Streamed]]) -> None:
    _, streams = streamed_job

    assert all(stream.finish_reason in ("length", "stop") for stream in streams)
    assert all(
        stream.num_completion_tokens == MAX_TOKENS for stream in streams if stream.finish_reason == "length"
    )
    print("largest gaps in s:", sorted(round(stream.largest_gap_s, 3) for stream in streams))


def test_some_streams_crossed_an_update_and_some_a_hand_over(
    platform: PlatformProcess, streamed_job: tuple[str, list[Streamed]]
) -> None:
    _, streams = streamed_job
    with platform.client() as client:
        answers = [answer_of(client, stream.session) for stream in streams]

    assert any(len(answer["versions"]) > 1 for answer in answers)
    assert any(answer["num_continuations"] > 0 for answer in answers)


def test_spans_add_up_and_stored_text_is_what_was_streamed(
    platform: PlatformProcess, streamed_job: tuple[str, list[Streamed]]
) -> None:
    _, streams = streamed_job
    with platform.client() as client:
        for stream in streams:
            answer = answer_of(client, stream.session)
            spans = answer["versions"]
            assert [span["start"] for span in spans] == [0, *(span["end"] for span in spans[:-1])]
            assert spans[-1]["end"] == answer["num_tokens"] == len(answer["logprobs"])
            assert all(span["start"] < span["end"] for span in spans)
            versions = [span["version"] for span in spans]
            assert versions == sorted(set(versions))
            assert answer["num_tokens"] == stream.num_completion_tokens
            assert answer["messages"][0]["content"] == stream.text


def test_logprobs_recomputed_under_the_same_versions_match_those_served(
    platform: PlatformProcess, model_root: Path, streamed_job: tuple[str, list[Streamed]]
) -> None:
    job_id, streams = streamed_job
    with platform.client() as client:
        paths = [path_of(client, stream.session) for stream in streams]
    mixed = next(path for path in paths if len(path.answer["versions"]) > 1)

    published = platform.home.artifacts / str(parse_id(IdKind.JOB, job_id)) / "versions"
    largest = max(
        float(np.abs(recomputed - served).max())
        for recomputed, served in spans_recomputed(mixed, model_root / "endless", published)
    )

    print(
        f"largest difference over {mixed.answer['num_tokens']} tokens, {mixed.answer['versions']}: {largest:.2e}"
    )
    assert largest < MAX_LOGPROB_DIFFERENCE


async def drive(platform: PlatformProcess, client: Client, job_id: str) -> list[Streamed]:
    """Keep streams running until some updates are published and some stream was handed over; feed
    the trainer meanwhile."""
    finished: list[Streamed] = []

    def is_seen() -> bool:
        is_trained = client.job_get(job_id)["latest_version"] >= MIN_UPDATES
        return is_trained and any(
            answer_of(client, stream.session)["num_continuations"] > 0 for stream in finished
        )

    async with asyncio.timeout(300), httpx.AsyncClient(base_url=platform.gateway_url, timeout=60) as http:
        feeder = asyncio.create_task(feed(http, platform, job_id))
        while not await asyncio.to_thread(is_seen):
            wave = [
                stream_one(http, platform, job_id, f"long-{len(finished) + k}") for k in range(NUM_STREAMS)
            ]
            finished += await asyncio.gather(*wave)
        feeder.cancel()
        await asyncio.wait([feeder])
    return finished


async def stream_one(http: httpx.AsyncClient, platform: PlatformProcess, job_id: str, group: str) -> Streamed:
    session = await session_open(http, platform, job_id, group)
    loop = asyncio.get_running_loop()
    text, reason, usage, gap_s, seen_at = "", "", 0, 0.0, None
    async with AsyncOpenAI(api_key=session["api_key"], base_url=session["base_url"], max_retries=0) as agent:
        stream = await agent.chat.completions.create(
            model="policy",
            messages=[{"role": "user", "content": "Talk on."}],
            max_tokens=MAX_TOKENS,
            stream=True,
            stream_options={"include_usage": True},
        )
        async for chunk in stream:
            now = loop.time()
            gap_s, seen_at = max(gap_s, now - seen_at if seen_at else 0.0), now
            for choice in chunk.choices:
                text += choice.delta.content or ""
                reason = choice.finish_reason or reason
            usage = chunk.usage.completion_tokens if chunk.usage else usage
    return Streamed(session["session"], text, usage, reason, gap_s)


@dataclass(frozen=True, slots=True)
class StoredPath:
    """The tokens from the root to one answer, and the answer's node."""

    token_ids: list[int]
    answer: dict[str, Any]


def answer_of(client: Client, session: str) -> dict[str, Any]:
    nodes = client.session_get(session, tokens=True)["nodes"]
    (answer,) = (node for node in nodes if node["kind"] == "sampled")
    return dict(answer)


def path_of(client: Client, session: str) -> StoredPath:
    nodes = {node["node_index"]: node for node in client.session_get(session, tokens=True)["nodes"]}
    (answer,) = (node for node in nodes.values() if node["kind"] == "sampled")
    path, index = [], answer["node_index"]
    while index is not None:
        path.append(nodes[index])
        index = nodes[index]["parent_index"]
    return StoredPath([token for node in reversed(path) for token in node["token_ids"]], answer)


def spans_recomputed(
    path: StoredPath, model_path: Path, published: Path
) -> Iterator[tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]]:
    """Return, for each span of one version, its tokens' float32 logprobs from transformers under
    that version, and as served."""
    served = np.asarray(path.answer["logprobs"], dtype=np.float32)
    num_prompt = len(path.token_ids) - len(served)
    transformers_logging.disable_progress_bar()
    ids = torch.tensor([path.token_ids])
    for start, end, version in ((s["start"], s["end"], s["version"]) for s in path.answer["versions"]):
        model = AutoModelForCausalLM.from_pretrained(model_path, dtype=torch.float32)
        if version:
            shards = (published / str(version)).glob("*.safetensors")
            tensors = {name: tensor for shard in shards for name, tensor in load_file(shard).items()}
            model.load_state_dict(tensors)
        with torch.inference_mode():
            logprobs = model(ids).logits[0].log_softmax(-1)
        positions = torch.arange(num_prompt + start, num_prompt + end)
        yield logprobs[positions - 1, ids[0, positions]].numpy(), served[start:end]
