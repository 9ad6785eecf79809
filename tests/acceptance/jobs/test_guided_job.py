"""A job whose answers must follow a schema or call a tool raises its reward, and trains as exactly on vLLM.

Both engines also hand turns over when the time to train comes.

Groups take turns between content of a JSON schema and a forced call, both about six digits. The reward is the share of
even digits; the policy has random ones before. The trainer must find each sampled logprob again under its mask.
"""

import asyncio
import json
from pathlib import Path
from typing import Any

import openai
import pytest

from seamlessflow.client import Client
from seamlessflow.core.lifecycle.jobs import TERMINAL_JOB_STATES
from tests.acceptance.calculator_agents import MODEL, Address
from tests.acceptance.external_crew import Crew, Rewards, Task, assert_rewards_rise, external_spec, tasks_of
from tests.acceptance.job_watching import assert_audit_holds
from tests.acceptance.platform_process import PlatformProcess, eventually

NUM_DIGITS = 6
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"number": {"type": "integer", "minimum": 100_000, "maximum": 999_999}},
    "required": ["number"],
    "additionalProperties": False,
}
SCHEMA_OF_ANSWER: Any = {
    "type": "json_schema",
    "json_schema": {"name": "said", "schema": SCHEMA, "strict": True},
}
TOOLS: Any = [{"type": "function", "function": {"name": "say", "parameters": SCHEMA}}]
KINDS = ("schema", "call")
LEARNING_RATE = 1e-3
MAX_TOKENS = (
    64  # of an answer: enough that some answers to a schema end, also before the policy has learned to
)
MAX_MISMATCH = 1e-3  # of a logprob, in float32
MISMATCH, GUIDED, UNKNOWN = "train/mismatch_max", "train/num_guided_tokens", "train/num_unknown_mask_tokens"


async def said_json(client: openai.AsyncOpenAI, kind: str, question: str) -> str:
    """Return what the policy said, or "" if the answer was cut short, which it may be in its reasoning."""
    messages: Any = [{"role": "user", "content": question}]
    if kind == "schema":
        said = await client.chat.completions.create(
            model=MODEL, messages=messages, response_format=SCHEMA_OF_ANSWER
        )
        text = said.choices[0].message.content or ""
    else:
        said = await client.chat.completions.create(
            model=MODEL, messages=messages, tools=TOOLS, tool_choice="required", parallel_tool_calls=False
        )
        calls = said.choices[0].message.tool_calls or []
        text = "".join(call.function.arguments for call in calls if call.type == "function")
    return "" if said.choices[0].finish_reason == "length" else text


def even_share(text: str) -> float:
    """Return the share of even digits in an answer, which must follow the schema if it has ended."""
    if not text:
        return 0.0
    number = json.loads(text)["number"]
    assert 100_000 <= number <= 999_999
    return sum(int(digit) % 2 == 0 for digit in str(number)) / NUM_DIGITS


async def worked(platform: PlatformProcess, job_id: str, model_root: Path) -> Crew:
    """Let agents work to the end of the job."""
    async with openai.AsyncOpenAI(
        base_url=f"{platform.gateway_url}/v1", api_key="of each session", max_retries=5
    ) as shared:

        async def work(kind: str, task: Task, address: Address) -> float:
            client = shared.with_options(base_url=address.base_url, api_key=address.api_key)
            return even_share(await said_json(client, kind, task["question"]))

        crew = Crew(platform, job_id, tasks=tasks_of(model_root), kinds=KINDS, work=work)
        await crew.run()
    return crew


def assert_trained_exactly(client: Client, job_id: str, *, num_updates: int) -> None:
    points = client.job_metric_points(job_id, [MISMATCH, GUIDED, UNKNOWN])
    print(max(points[MISMATCH]["value"]), sum(points[GUIDED]["value"]))
    assert len(points[GUIDED]["value"]) == num_updates
    assert min(points[GUIDED]["value"]) > 0
    assert set(points[UNKNOWN]["value"]) == {0}
    assert points[MISMATCH]["value"], "tokens were compared"
    assert max(points[MISMATCH]["value"]) < MAX_MISMATCH


def train_guided(platform: PlatformProcess, model_root: Path, *, engine: str, num_updates: int) -> Rewards:
    """Return the rewards of the groups, by kind."""
    spec = external_spec(model_root, f"guided on {engine}", num_updates=num_updates)
    spec["rollout"] |= {"engine": engine, "max_tokens_per_turn": MAX_TOKENS}
    spec["train"]["learning_rate"] = LEARNING_RATE
    with platform.client() as client:
        job_id = client.job_submit(spec)["id"]
        eventually(lambda: client.job_get(job_id)["state"] == "running", timeout_s=120, what="the start")
        crew = asyncio.run(worked(platform, job_id, model_root))
        eventually(
            lambda: client.job_get(job_id)["state"] in TERMINAL_JOB_STATES, timeout_s=60, what="the end"
        )
        ended = client.job_get(job_id)
        assert ended["state"] == "completed", ended["state_reason"]
        assert_trained_exactly(client, job_id, num_updates=num_updates)
        assert_audit_holds(client, job_id)
        num_handed_over = client.job_part(job_id, "summary")["num_turns_handed_over"]
        assert num_handed_over > 0
    return crew.rewards


def test_a_guided_job_learns_on_the_embedded_engine(platform: PlatformProcess, model_root: Path) -> None:
    rewards = train_guided(platform, model_root, engine="embedded", num_updates=12)
    for kind in KINDS:
        assert_rewards_rise(rewards, kind, gain=0.15)


@pytest.mark.usefixtures("vllm_interpreter")
def test_a_guided_job_trains_exactly_on_vllm(platform: PlatformProcess, model_root: Path) -> None:
    """Exact logprobs and masks are all that learning needs of an engine."""
    rewards = train_guided(platform, model_root, engine="vllm", num_updates=4)
    assert set(rewards) == set(KINDS)
    assert all(max(of_kind) > 0 for of_kind in rewards.values())
