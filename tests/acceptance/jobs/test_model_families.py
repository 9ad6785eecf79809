"""A job trains a model of another family than Qwen3 through tool loops, from the agent's client to the trainer's step.

The family is the one that differs most from Qwen3. Contract and integration tests have all of them.
"""

import json
from pathlib import Path
from typing import Any

import httpx
import openai

from seamlessflow.client import Client
from seamlessflow.core.families import ModelFamily
from tests.acceptance.family_models import ANSWER, QUESTION, RESULT, family_model
from tests.acceptance.platform_process import PlatformProcess
from tests.fixtures.family_cases import SUM, TOOLS
from tests.fixtures.real_tokenizers import REAL_MODELS

MAX_MISMATCH = 1e-3  # nats, between the engine's logprobs and the trainer's
GROUP_SIZE = 2
GROUPS_PER_BATCH = 2
CLIENT_TIMEOUT_S = 120.0  # the first answer waits for the engine


def test_another_family_trains_through_tool_loops(platform: PlatformProcess, model_root: Path) -> None:
    model = next(model for model in REAL_MODELS if model.family is ModelFamily.DEEPSEEK_V31)
    folder = family_model(model_root / model.family.value, model)
    with platform.client() as client:
        job = client.job_submit(spec_of(folder))["id"]
        loops = [
            tool_loop(platform, job, group=f"group-{number // GROUP_SIZE}", reward=float(number % GROUP_SIZE))
            for number in range(GROUP_SIZE * GROUPS_PER_BATCH)
        ]
        ended = client.job_wait(job)
        assert (ended["state"], ended["latest_version"]) == ("completed", 1), ended["state_reason"]
        assert client.job_part(job, "audit")["ok"]
        metrics = client.job_part(job, "metrics")["metrics"]
        assert max(metrics["train/mismatch_max"]["value"]) < MAX_MISMATCH
        whole = [session for session, has_called in loops if has_called]
        assert whole, "no session called a tool"
        for session in whole:
            assert_joined(client, session)


def spec_of(folder: Path) -> dict[str, Any]:
    return {
        "name": folder.name,
        "model": {"source": str(folder), "max_model_len": 1024, "dtype": "float32"},
        "environment": {"name": "external"},
        "rollout": {
            "group_size": GROUP_SIZE,
            "groups_per_batch": GROUPS_PER_BATCH,
            "max_tokens_per_turn": 128,
        },
        "algorithm": {"kl_coef": 0.0},
        "train": {"num_updates": 1, "learning_rate": 1e-4},
    }


def tool_loop(platform: PlatformProcess, job: str, *, group: str, reward: float) -> tuple[str, bool]:
    """Run one session to its end; return it, and whether the model called both tools and then answered."""
    headers = {"Authorization": f"Bearer {platform.token}"}
    with httpx.Client(base_url=platform.gateway_url, headers=headers, timeout=CLIENT_TIMEOUT_S) as http:
        opened = http.post("/v1/sessions", json={"job": job, "group": group}).raise_for_status().json()
        with openai.OpenAI(
            api_key=opened["api_key"], base_url=opened["base_url"], timeout=CLIENT_TIMEOUT_S
        ) as agent:
            has_called = converse(agent)
        path = f"/v1/sessions/{opened['session']}"
        for verb, body in (("reward", {"reward": reward}), ("close", {})):
            http.post(f"{path}/{verb}", json=body).raise_for_status()
    return opened["session"], has_called


def converse(agent: openai.OpenAI) -> bool:
    messages: Any = [{"role": "user", "content": QUESTION}]
    tools: Any = TOOLS
    said = agent.chat.completions.create(model="policy", messages=messages, tools=tools).choices[0].message
    calls: Any = said.tool_calls or []
    messages.append(said.model_dump(exclude_none=True))
    messages += [{"role": "tool", "tool_call_id": call.id, "content": RESULT} for call in calls]
    if not calls:
        messages.append({"role": "user", "content": QUESTION})
    after = agent.chat.completions.create(model="policy", messages=messages, tools=tools).choices[0].message
    asked = [(call.function.name, json.loads(call.function.arguments)) for call in calls]
    return asked == [("calc", SUM), ("now", {})] and after.content == ANSWER


def assert_joined(client: Client, session: str) -> None:
    """Assert that both turns are one branch in which every sampled token has a logprob."""
    nodes = client.session_get(session, tokens=True)["nodes"]
    assert [(node["parent_index"], node["drift"]) for node in nodes] == [
        (None, "clean"), (0, None), (1, "clean"), (2, None),
    ]  # fmt: skip
    for sampled in nodes[1::2]:
        assert len(sampled["logprobs"]) == len(sampled["token_ids"]) == sampled["num_tokens"]
