"""External agents that keep forests growing: long answers in one group after another, across
updates.

It takes an `external` job and tells which session is being answered. Short sessions feed the
trainer meanwhile, so new versions appear while the long answers decode.
"""

import asyncio
import itertools
import threading
from pathlib import Path
from typing import Any

import httpx
from openai import AsyncOpenAI
from playwright.sync_api import Page

from tests.acceptance.platform_process import PlatformProcess

# Swatches of the legend whose colour is somewhere on the canvas.
VERSIONS_PAINTED = """() => {
  const canvas = document.querySelector('.forest-canvas canvas');
  const copy = new OffscreenCanvas(canvas.width, canvas.height).getContext('2d', { willReadFrequently: true });
  copy.drawImage(canvas, 0, 0);
  const pixels = copy.getImageData(0, 0, canvas.width, canvas.height).data;
  const seen = new Set();
  for (let at = 0; at < pixels.length; at += 4) seen.add(`rgb(${pixels[at]}, ${pixels[at + 1]}, ${pixels[at + 2]})`);
  return [...document.querySelectorAll('.forest-legend .legend-entry')]
    .filter((entry) => /^\\d+$/.test(entry.textContent.trim()))
    .filter((entry) => seen.has(getComputedStyle(entry.querySelector('i')).backgroundColor))
    .map((entry) => entry.textContent.trim());
}"""

MAX_TOKENS = 1200
GROUPS_PER_BATCH = 2
GROUP_SIZE = 2
BETWEEN_BATCHES_S = 1.5  # enough for the machine that trained to take streams again


def versions_painted(page: Page) -> list[str]:
    """Return the versions of the forest whose colours are on its canvas."""
    painted: list[str] = page.evaluate(VERSIONS_PAINTED)
    return painted


class Agents:
    """Agents in a thread. `num_tokens` is the length of a group's long answers, which begin
    `apart_s` apart."""

    def __init__(
        self,
        platform: PlatformProcess,
        job_id: str,
        *,
        num_tokens: tuple[int, ...] = (MAX_TOKENS,) * GROUP_SIZE,
        apart_s: float = 0.0,
    ) -> None:
        self._platform = platform
        self._job_id = job_id
        self._num_tokens = num_tokens
        self._apart_s = apart_s
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.talking: str | None = None  # a session whose answer is in the making
        self.failure: BaseException | None = None

    def __enter__(self) -> "Agents":
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._thread.join(60)
        if self.failure is not None:
            raise self.failure

    def _run(self) -> None:
        try:
            asyncio.run(self._drive())
        except BaseException as error:  # told to the test by whoever leaves the context
            self.failure = error

    async def _drive(self) -> None:
        async with httpx.AsyncClient(base_url=self._platform.gateway_url, timeout=60) as http:
            feeding = asyncio.create_task(feed(http, self._platform, self._job_id, len(self._num_tokens)))
            for number in itertools.count():
                if self._stop.is_set():
                    break
                await self._group(http, f"watched-{number}")
            feeding.cancel()
            await asyncio.wait([feeding])

    async def _group(self, http: httpx.AsyncClient, name: str) -> None:
        sessions = [await session_open(http, self._platform, self._job_id, name) for _ in self._num_tokens]
        self.talking = sessions[0]["session"]
        starts = [place * self._apart_s for place in range(len(sessions))]
        await asyncio.gather(*map(talk, sessions, self._num_tokens, starts))
        self.talking = None


async def talk(session: dict[str, Any], num_tokens: int, start_s: float) -> None:
    await asyncio.sleep(start_s)
    async with AsyncOpenAI(api_key=session["api_key"], base_url=session["base_url"], max_retries=0) as agent:
        await agent.chat.completions.create(
            model="policy", messages=[{"role": "user", "content": "Talk on."}], max_tokens=num_tokens
        )


def external_spec(model_root: Path) -> dict[str, Any]:
    return {
        "name": "external agents",
        "model": {"source": str(model_root / "endless"), "max_model_len": 2048},
        "environment": {"name": "external"},
        "rollout": {
            "group_size": GROUP_SIZE,
            "groups_per_batch": GROUPS_PER_BATCH,
            "max_tokens_per_turn": MAX_TOKENS,
            "max_num_seqs": 24,
        },
        "algorithm": {"max_staleness": 1000, "kl_coef": 0.0},  # room for the groups that streams leave open
        "train": {"num_updates": 10_000, "learning_rate": 1e-3, "keep_versions": 100},
    }


async def feed(
    http: httpx.AsyncClient, platform: PlatformProcess, job_id: str, group_size: int = GROUP_SIZE
) -> None:
    """Short sessions with an outcome each: what the trainer eats, batch by batch with time to roll out in between."""
    for index in itertools.count():
        if index % GROUPS_PER_BATCH == 0:
            await asyncio.sleep(BETWEEN_BATCHES_S)
        group = [await session_open(http, platform, job_id, f"short-{index}") for _ in range(group_size)]
        for place, session in enumerate(group):
            async with AsyncOpenAI(api_key=session["api_key"], base_url=session["base_url"]) as agent:
                await agent.chat.completions.create(
                    model="policy", messages=[{"role": "user", "content": "1+1"}], max_tokens=8
                )
            headers = {"Authorization": f"Bearer {platform.token}"}
            path = f"/v1/sessions/{session['session']}"
            for verb, body in (("reward", {"reward": float(place % 2)}), ("close", {})):
                (await http.post(f"{path}/{verb}", json=body, headers=headers)).raise_for_status()


async def session_open(
    http: httpx.AsyncClient, platform: PlatformProcess, job_id: str, group: str
) -> dict[str, Any]:
    headers = {"Authorization": f"Bearer {platform.token}"}
    answer = await http.post("/v1/sessions", json={"job": job_id, "group": group}, headers=headers)
    answer.raise_for_status()
    return dict(answer.json())
