"""Links that are cut in one or both directions, and requests that arrive twice and late: faults 6,
7 and 14."""

import asyncio
import contextlib
import time

from seamlessflow.core.lifecycle.jobs import TERMINAL_JOB_STATES
from tests.benchmarks.faults.links import shuffler_opened
from tests.benchmarks.faults.trial import NUM_UPDATES, OVER_WITHIN_S, Fault, Trial

CUT_MACHINE = "beta"
SILENT_TOO_LONG_S = 15.0  # a machine that is unheard for longer is given up
HEARD_AGAIN_WITHIN_S = 30.0
MIN_REPEATED = 50
MIN_VERSIONS_PER_S = 0.3  # of a cut longer than that: one machine of two may be missing, work goes on


def machine_cut_off(trial: Trial, for_s: float, *, forth: bool = True, back: bool = True) -> None:
    job_id = trial.under_way(trial.spec(num_updates=max(NUM_UPDATES, int(2 * for_s))))
    with trial.world.web_links[CUT_MACHINE].cut(forth=forth, back=back):
        time.sleep(for_s)
        version = trial.version(job_id)
        failed = trial.failed_phases(job_id)
    trial.figures.append(f"version {version} at its end, {len(failed)} phases given up")
    if for_s < SILENT_TOO_LONG_S:
        trial.require(not failed, f"a short cut cost a phase: {failed[:1]}")
    else:
        trial.require(
            version >= MIN_VERSIONS_PER_S * for_s, f"the job stood still: version {version} after {for_s:g} s"
        )
        is_given_up = any(CUT_MACHINE in reason for reason in failed)
        trial.require(is_given_up or not forth, f"{CUT_MACHINE} was never given up")
    _, took_s = trial.eventually(
        lambda: _is_heard(trial), within_s=HEARD_AGAIN_WITHIN_S, what=f"the return of {CUT_MACHINE}"
    )
    trial.figures.append(f"heard again after {took_s:.1f} s")


def _is_heard(trial: Trial) -> bool:
    with trial.world.client() as client:
        return bool(client.machine_get(CUT_MACHINE)["is_up"])


def gateway_cut_off(trial: Trial) -> None:
    """Trainer and agents cannot reach the data plane for 30 s."""
    trial.under_way()
    with trial.world.gateway_link.cut():
        time.sleep(30)


def requests_shuffled(trial: Trial) -> None:
    """Every link of every machine adds random delays and repeats a third of the writing requests,
    up to 2 s later."""
    job_id = trial.under_way(version=1)
    over = asyncio.Event()
    shuffling = asyncio.run_coroutine_threadsafe(_shuffled(trial, over), trial.world.loop)
    trial.eventually(
        lambda: trial.state(job_id) in TERMINAL_JOB_STATES, within_s=OVER_WITHIN_S, what="the end of the job"
    )
    trial.world.loop.call_soon_threadsafe(over.set)
    shuffling.result()


async def _shuffled(trial: Trial, over: asyncio.Event) -> None:
    world = trial.world
    async with (
        shuffler_opened(world.web_url, seed=1) as web,
        shuffler_opened(world.gateway_link.target, seed=2) as gateway,
    ):
        with contextlib.ExitStack() as shuffled:
            for link in world.web_links.values():
                shuffled.enter_context(link.led_to(web.url))
            shuffled.enter_context(world.gateway_link.led_to(gateway.url))
            await over.wait()
    for name, shuffler in (("web", web), ("gateway", gateway)):
        trial.figures.append(f"{name}: {shuffler.num_repeated} of {shuffler.num_passed} requests repeated")
        trial.require(
            shuffler.num_repeated >= MIN_REPEATED, f"only {shuffler.num_repeated} requests were repeated"
        )


FAULTS = (
    Fault("6a", "machine cut off for 5 s", lambda trial: machine_cut_off(trial, 5)),
    Fault("6b", "machine cut off for 60 s", lambda trial: machine_cut_off(trial, 60)),
    Fault("6c", "machine cut off for 10 min", lambda trial: machine_cut_off(trial, 600)),
    Fault("6d", "data plane cut off for 30 s", gateway_cut_off),
    Fault("7a", "machine heard, does not hear, 30 s", lambda trial: machine_cut_off(trial, 30, forth=False)),
    Fault("7b", "machine hears, is not heard, 30 s", lambda trial: machine_cut_off(trial, 30, back=False)),
    Fault("14", "requests repeated and out of order", requests_shuffled),
)
