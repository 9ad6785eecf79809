"""Processes that are killed, kept dead or emptied: faults 1 to 5 and 12."""

import contextlib
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import httpx
import psutil
import psycopg
import redis

from tests.benchmarks.faults.model_clients import endless_job, session_opened, streamed
from tests.benchmarks.faults.trial import Fault, Trial
from tests.benchmarks.faults.watchers import snapshot_taken

CONTROL_PLANE = (
    ("control_plane.asgi:application",),
    ("run_scheduler",),
    ("celery", "-A", "seamlessflow.control_plane.celery"),
)
KILL_EVERY_S = 0.05
RESYNC_WITHIN_S = 10.0
BACK_WITHIN_S = 60.0
UNAVAILABLE = 503
PROBLEM = "application/problem+json"
ABRUPT_WITHIN_S = 15.0


def killed(processes: Sequence[psutil.Process], number: int = signal.SIGKILL) -> int:
    """Send a signal to the processes and return how many existed."""
    count = 0
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.send_signal(number)
            count += 1
    return count


def control_plane_dead(trial: Trial, for_s: float) -> None:
    """Kill the processes again and again for this time, because the launcher restarts them at
    once."""
    job_id = trial.under_way()
    failed_before = len(trial.failed_phases(job_id))
    until_s = time.monotonic() + for_s
    while True:
        for words in CONTROL_PLANE:
            killed(trial.world.find(*words))
        if time.monotonic() >= until_s:
            break
        time.sleep(KILL_EVERY_S)
    trial.eventually(lambda: trial.job(job_id), within_s=BACK_WITHIN_S, what="the return of the web")
    _, took_s = trial.eventually(
        lambda: snapshot_taken(trial.world, job_id), within_s=RESYNC_WITHIN_S, what="a snapshot"
    )
    trial.figures.append(f"a page is in step {took_s:.1f} s after the web answers")
    version = trial.version(job_id)
    trial.eventually(lambda: trial.version(job_id) > version, within_s=BACK_WITHIN_S, what="the next version")
    new = trial.failed_phases(job_id)[failed_before:]
    trial.require(not new, f"{len(new)} running phases failed: {new[:1]}")


def celery_killed(trial: Trial) -> None:
    job_id = trial.under_way()
    for _ in range(5):
        count = killed(trial.world.find("celery", "-A")) + killed(trial.world.find("supervisor.doorbell"))
        trial.require(count > 0, "there was no Celery process to kill")
        time.sleep(2)
    trial.require(not trial.failed_phases(job_id), f"phases failed: {trial.failed_phases(job_id)[:1]}")


def broker_killed(trial: Trial) -> None:
    trial.under_way()
    for _ in range(3):
        trial.require(killed(trial.processes("valkey-server")) > 0, "there was no broker to kill")
        time.sleep(2)


def broker_flushed(trial: Trial) -> None:
    trial.under_way()
    for _ in range(20):
        with (
            contextlib.suppress(redis.ConnectionError),
            redis.Redis.from_url(trial.world.urls.events_url) as broker,
        ):
            broker.flushall()
        time.sleep(0.5)


def broker_dead_while_jobs_are_submitted(trial: Trial) -> None:
    """There is no broker for a minute: jobs accepted meanwhile run afterwards, once."""
    until_s = time.monotonic() + 60
    submitter = threading.Thread(target=_submit_until, args=(trial, until_s, 3, 15.0))
    submitter.start()
    while time.monotonic() < until_s:
        killed(trial.world.find("valkey-server"))
        time.sleep(KILL_EVERY_S)
    submitter.join()
    trial.require(len(trial.jobs) == 3, f"{len(trial.jobs)} of 3 jobs were accepted without a broker")
    _, took_s = trial.eventually(
        lambda: any(trial.version(job) > 0 for job in trial.jobs), within_s=60, what="the first version"
    )
    trial.figures.append(f"first version {took_s:.1f} s after the broker's return")


def _submit_until(trial: Trial, until_s: float, count: int, every_s: float) -> None:
    for _ in range(count):
        trial.submit(trial.spec(num_updates=4))
        time.sleep(min(every_s, max(0.0, until_s - time.monotonic())))


def database_restarted(trial: Trial) -> None:
    trial.under_way()
    with _submitting(trial) as answers:
        for _ in range(2):
            trial.require(killed(trial.processes("bin/postgres", "-D")) > 0, "there was no database to kill")
            time.sleep(4)
    _said_503(trial, answers)


def database_cuts_its_clients(trial: Trial) -> None:
    trial.under_way()
    with _submitting(trial) as answers:
        for _ in range(5):
            with contextlib.suppress(psycopg.OperationalError), trial.world.database() as connection:
                connection.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() "
                    "AND backend_type = 'client backend'"
                )
            time.sleep(1)
    _said_503(trial, answers)


def database_full_of_clients(trial: Trial) -> None:
    """All connections are taken and those of the planes are cut: they find none for 10 s."""
    trial.under_way()
    with contextlib.ExitStack() as ours, _submitting(trial) as answers:
        until_s = time.monotonic() + 10
        num_taken = 0
        while time.monotonic() < until_s:
            try:
                connection = ours.enter_context(
                    psycopg.connect(trial.world.urls.database_url, autocommit=True)
                )
                num_taken += 1
            except psycopg.OperationalError:
                time.sleep(0.05)
                continue
            if num_taken % 20 == 0:
                connection.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'client backend' "
                    "AND application_name <> current_setting('application_name') AND pid <> pg_backend_pid()"
                )
    trial.figures.append(f"{num_taken} connections taken")
    _said_503(trial, answers)


@contextmanager
def _submitting(trial: Trial) -> Iterator[list[httpx.Response]]:
    """Submit small jobs, one after another, while the block runs; return the answers."""
    answers: list[httpx.Response] = []
    stop = threading.Event()

    def submit() -> None:
        while not stop.is_set() and len(trial.jobs) < 6:
            answer = trial.submit(trial.spec(num_updates=2))
            if answer is not None:
                answers.append(answer)
            stop.wait(0.5)

    thread = threading.Thread(target=submit)
    thread.start()
    try:
        yield answers
    finally:
        stop.set()
        thread.join()


def _said_503(trial: Trial, answers: Sequence[httpx.Response]) -> None:
    refused = [answer for answer in answers if not answer.is_success]
    trial.figures.append(f"{len(answers) - len(refused)} submissions accepted, {len(refused)} answered 503")
    for answer in refused:
        is_problem = answer.headers.get("content-type", "").startswith(PROBLEM)
        if answer.status_code != UNAVAILABLE or not is_problem or "retry-after" not in answer.headers:
            trial.faults.append(f"a submission was answered {answer.status_code}: {answer.text[:120]}")


def gateway_killed_while_streaming(trial: Trial) -> None:
    """The client notices, and a marked retry continues from the tokens it has."""
    job_id = endless_job(trial)
    session = session_opened(trial.world, job_id)
    heard = streamed(
        session,
        max_tokens=400,
        on_text=lambda text: len(text) > 40 and killed(trial.world.find("seamlessflow.data_plane")),
    )
    trial.require(heard.error is not None, "the stream ended as if it were whole")
    trial.require(heard.silent_s < ABRUPT_WITHIN_S, f"the client heard nothing for {heard.silent_s:.0f} s")
    trial.figures.append(f"{len(heard.text)} characters, then {type(heard.error).__name__}")
    trial.eventually(lambda: _is_ready(trial), within_s=BACK_WITHIN_S, what="the return of the gateway")
    again = streamed(session, max_tokens=400, attempt=1)
    trial.require(again.error is None, f"the retry failed: {again.error}")
    trial.require(again.finish_reason == "length", f"the retry ended with {again.finish_reason!r}")
    trial.cancel(job_id)


def _is_ready(trial: Trial) -> bool:
    with contextlib.suppress(httpx.TransportError):
        return httpx.get(f"{trial.world.gateway_url}/healthz", timeout=5).is_success
    return False


def rank_hung(trial: Trial) -> None:
    """One of two processes that train together is stopped for good."""
    job_id = trial.under_way(trial.spec(num_ranks=2))
    ranks = trial.processes("seamlessflow_workers.train")
    version = trial.version(job_id)
    killed(ranks[-1:], signal.SIGSTOP)
    _, took_s = trial.eventually(
        lambda: trial.version(job_id) > version + 1, within_s=300, what="training without the rank"
    )
    killed(ranks[-1:], signal.SIGCONT)
    trial.figures.append(f"the next versions {took_s:.0f} s later")
    reasons = trial.failed_phases(job_id)
    trial.require(bool(reasons), "no phase failed for it")
    trial.figures.extend(reasons[-1:])


def device_lost(trial: Trial) -> None:
    """An engine aborts, as it does when its device is lost."""
    job_id = trial.under_way()
    for _ in range(3):
        engines = trial.processes("seamlessflow_workers.rollout.engine", under="--name beta")
        killed(engines, signal.SIGABRT)
        time.sleep(3)
    trial.require(bool(trial.failed_phases(job_id)), "no phase failed for it")
    trial.figures.append(f"{len(trial.failed_phases(job_id))} phases failed by name")


FAULTS = (
    Fault("1a", "control plane killed", lambda trial: control_plane_dead(trial, 0)),
    Fault("1b", "control plane dead for 20 s", lambda trial: control_plane_dead(trial, 20)),
    Fault("1c", "control plane dead for 60 s", lambda trial: control_plane_dead(trial, 60)),
    Fault("2", "Celery killed in mid-task, five times", celery_killed),
    Fault("3a", "broker killed, three times", broker_killed),
    Fault("3b", "broker flushed for 10 s", broker_flushed),
    Fault("3c", "no broker for 60 s, jobs submitted", broker_dead_while_jobs_are_submitted),
    Fault("4a", "database killed twice, jobs submitted", database_restarted),
    Fault("4b", "database cuts its clients, jobs submitted", database_cuts_its_clients),
    Fault("4c", "no connection left, jobs submitted", database_full_of_clients),
    Fault("5", "gateway killed during a stream", gateway_killed_while_streaming, ends="cancelled"),
    Fault("12a", "a rank hangs", rank_hung),
    Fault("12b", "a device is lost, three times", device_lost),
)
