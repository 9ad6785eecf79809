"""A job whose agents speak all APIs of the gateway, a group each, raises its reward through each of them."""

import asyncio
from pathlib import Path

from seamlessflow.core.lifecycle.jobs import TERMINAL_JOB_STATES
from seamlessflow_workers.agents.rewards.exact_answer import exact_reward
from tests.acceptance.calculator_agents import Address, CalculatorAgents
from tests.acceptance.external_crew import Crew, Task, assert_rewards_rise, external_spec, tasks_of
from tests.acceptance.job_watching import assert_audit_holds
from tests.acceptance.platform_process import PlatformProcess, eventually

APIS = ("chat", "completions", "responses", "messages")
NUM_UPDATES = 12
LEARNING_RATE = 6e-4
GAIN = 0.2  # of about 0.5 that were seen


async def worked(platform: PlatformProcess, job_id: str, model_root: Path) -> Crew:
    """Let agents work to the end of the job."""
    agents = CalculatorAgents(model_root / "calculator", f"{platform.gateway_url}/v1")

    async def work(api: str, task: Task, address: Address) -> float:
        return exact_reward(task, await agents.answer[api](task["question"], address))

    crew = Crew(platform, job_id, tasks=tasks_of(model_root), kinds=APIS, work=work)
    await crew.run()
    await agents.close()
    return crew


def test_a_job_learns_through_every_api(platform: PlatformProcess, model_root: Path) -> None:
    with platform.client() as client:
        spec = external_spec(model_root, "four APIs", num_updates=NUM_UPDATES)
        spec["train"]["learning_rate"] = LEARNING_RATE
        job_id = client.job_submit(spec)["id"]
        eventually(lambda: client.job_get(job_id)["state"] == "running", timeout_s=120, what="the start")
        crew = asyncio.run(worked(platform, job_id, model_root))
        eventually(
            lambda: client.job_get(job_id)["state"] in TERMINAL_JOB_STATES, timeout_s=60, what="the end"
        )
        ended = client.job_get(job_id)
        assert ended["state"] == "completed", ended["state_reason"]
        assert_audit_holds(client, job_id)

    for api in APIS:
        assert_rewards_rise(crew.rewards, api, gain=GAIN)
