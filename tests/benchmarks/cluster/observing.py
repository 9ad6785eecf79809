"""Measures what a run did between two of its publications: tokens, machine time, processor time of
the planes.

It takes the REST API and the database of the installation, and its processes, and returns a
`Window`. A window begins and ends with a publication, so it contains complete training steps, and
no figure includes the start or the end of the job.
"""

import math
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import psutil
import psycopg

from seamlessflow.cli.local.process_tree import ManagedProcess
from seamlessflow.client import Client
from seamlessflow.core.types.ids import IdKind, parse_id

PLANES = ("postgres", "valkey", "web", "gateway", "scheduler", "background", "beat")
SUPERVISOR = "supervisor-"
OTHERS = "others"  # whatever else runs on this host, and what its hypervisor gave to others
# Tokens that were sampled for groups that were trained or dropped: in a batch of the window, or dropped in it. Of a
# batch only those that the step used entered the weights.
_TOKENS = """
    SELECT coalesce(sum(n.num_tokens + n.num_wasted_tokens), 0)
    FROM trajectory_node n JOIN trajectory_session s ON s.id = n.session_id AND s.month = n.month
    JOIN trajectory_group g ON g.id = s.group_id
    WHERE n.job_id = %(job)s AND n.kind = 2
      AND (g.batch_number > %(first)s AND g.batch_number <= %(last)s
           OR g.state = 'dropped' AND g.ready_at > %(since)s AND g.ready_at <= %(until)s)
"""
_STALENESS = "train/staleness_mean"
_SAMPLED = """
    SELECT coalesce(sum(num_tokens + num_wasted_tokens), 0) FROM trajectory_node
    WHERE job_id = %(job)s AND kind = 2 AND created_at > %(since)s AND created_at <= %(until)s
"""


@dataclass(frozen=True, slots=True)
class Window:
    """`seconds` sums over the working machines (without the agents'), by (state, cause)."""

    duration_s: float
    num_machines: int
    num_versions: int
    num_trained_tokens: float  # they entered the weights within the staleness bound
    num_sampled_tokens: float
    num_finalized_tokens: float  # of groups that were trained or dropped
    step_s: float  # forward, backward and optimizer, summed
    seconds: Mapping[tuple[str, str], float]
    cpu_shares: Mapping[str, float]  # of one core, by process
    mean_staleness: float = math.nan  # of the trained tokens, in versions

    def share(self, *states: str) -> float:
        """Return the share of machine time."""
        return self.seconds_of(*states) / (self.duration_s * self.num_machines)

    def seconds_of(self, *states: str) -> float:
        return sum(seconds for (state, _), seconds in self.seconds.items() if state in states)

    def time_shares(self) -> dict[str, float]:
        """Return the shares of machine time by state, and by cause if there is one."""
        total_s = self.duration_s * self.num_machines
        return {
            f"{state}: {cause}" if cause else state: seconds / total_s
            for (state, cause), seconds in self.seconds.items()
        }

    @property
    def machines_cpu_s(self) -> float:
        """Return the processor seconds of supervisors and all that they started, including the
        agents."""
        shares = (share for name, share in self.cpu_shares.items() if name.startswith(SUPERVISOR))
        return self.duration_s * sum(shares)

    def cpu_share(self, names: Iterable[str], *, num_cores: int) -> float:
        """Return the share of the cores' time."""
        return sum(self.cpu_shares.get(name, 0.0) for name in names) / num_cores


class Observer:
    """Observes one job on `machines`, which do its work. `cpu_mark` is called when the window
    begins and when it ends."""

    def __init__(
        self,
        client: Client,
        database_url: str,
        processes: Sequence[ManagedProcess],
        job_id: str,
        *,
        machines: Sequence[str],
    ) -> None:
        self._client = client
        self._database_url = database_url
        self._processes = processes
        self._job = job_id
        self._machines = machines
        self._marks: list[tuple[float, Mapping[str, float]]] = []

    def cpu_mark(self) -> None:
        pids = {managed.spec.name: managed.pid for managed in self._processes}
        seconds = {name: tree_cpu_s(pid) for name, pid in pids.items() if pid is not None}
        self._marks.append((time.monotonic(), {**seconds, OTHERS: host_cpu_s() - sum(seconds.values())}))

    def window(self, first_version: int, last_version: int) -> Window:
        """Measure from the publication of `first_version` to that of `last_version`."""
        published = {row["version"]: row["published_at"] for row in self._pages("versions")}
        since, until = published[first_version], published[last_version]
        steps = self._steps(first_version, last_version)
        sampled, finalized = self._tokens(since, until, first_version, last_version)
        seconds, num_machines = self._ledger(since, until)
        return Window(
            duration_s=_elapsed_s(since, until),
            num_machines=num_machines,
            num_versions=last_version - first_version,
            num_trained_tokens=steps["train/num_trained_tokens"],
            num_sampled_tokens=sampled,
            num_finalized_tokens=finalized,
            step_s=steps["train/step_s"],
            seconds=seconds,
            cpu_shares=self._cpu_shares(),
            mean_staleness=steps[_STALENESS] / steps["train/num_trained_tokens"],
        )

    def _cpu_shares(self) -> Mapping[str, float]:
        """Return the shares between the marks. A mark is set when a publication is noticed, so it
        is late by up to one poll."""
        (since_s, before), (until_s, after) = self._marks[0], self._marks[-1]
        return {name: (after[name] - before[name]) / (until_s - since_s) for name in after if name in before}

    def _pages(self, part: str) -> Iterator[Mapping[str, Any]]:
        offset = 0
        while page := self._client.job_part(self._job, part, offset=offset)["results"]:
            yield from page
            offset += len(page)

    def _steps(self, first_version: int, last_version: int) -> Mapping[str, float]:
        """Return sums over the window's training steps, by metric; the staleness is summed over tokens."""
        columns = self._client.job_part(self._job, "metrics", **{"from": first_version + 1})["metrics"]
        by_step = {
            name: {
                step: value
                for step, value in zip(column["step"], column["value"], strict=True)
                if step <= last_version
            }
            for name, column in columns.items()
        }
        num_tokens = by_step["train/num_trained_tokens"]
        if (staleness := by_step.get(_STALENESS)) is not None:
            by_step[_STALENESS] = {step: mean * num_tokens[step] for step, mean in staleness.items()}
        return defaultdict(float, {name: sum(values.values()) for name, values in by_step.items()})

    def _tokens(self, since: str, until: str, first_batch: int, last_batch: int) -> tuple[float, ...]:
        """Return the tokens sampled in the window, and those sampled for groups that were trained
        or dropped in it (batch n makes version n)."""
        values = {
            "job": parse_id(IdKind.JOB, self._job),
            "first": first_batch,
            "last": last_batch,
            "since": since,
            "until": until,
        }
        with psycopg.connect(self._database_url) as connection:
            rows = [connection.execute(query, values).fetchone() for query in (_SAMPLED, _TOKENS)]
        return tuple(float(row[0]) for row in rows if row is not None)

    def _ledger(self, since: str, until: str) -> tuple[Mapping[tuple[str, str], float], int]:
        """Return the seconds of the machines that may work, and the number of these machines."""
        seconds: dict[tuple[str, str], float] = defaultdict(float)
        for name in self._machines:
            machine_id = self._client.machine_get(name)["id"]
            ledger = self._client.machine_ledger(machine_id, since=since, until=until)
            for total in ledger["totals"]:
                seconds[total["state"], total["cause"]] += total["duration_s"]
        return dict(seconds), len(self._machines)


def tree_cpu_s(pid: int) -> float:
    """Return the processor seconds of a process and all its descendants, including those that ended
    and were waited for."""
    total_s = 0.0
    process = psutil.Process(pid)
    for member in (process, *process.children(recursive=True)):
        try:
            times = member.cpu_times()
        except psutil.NoSuchProcess:  # between the list and the look
            continue
        total_s += times.user + times.system + times.children_user + times.children_system
    return total_s


def host_cpu_s() -> float:
    """Return the processor seconds of this host since its start that are not idle, including stolen
    ones."""
    times = psutil.cpu_times()
    return float(
        sum(times) - times.idle - times.iowait - times.guest - times.guest_nice
    )  # guests are in user


def _elapsed_s(since: str, until: str) -> float:
    return (datetime.fromisoformat(until) - datetime.fromisoformat(since)).total_seconds()
