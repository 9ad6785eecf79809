"""The worker protocol: heartbeats, orders, warm processes, publications, metrics and logs."""

import json
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import msgspec
import pytest
from django.conf import settings
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from seamlessflow.control_plane.cluster.models import MachineHeartbeat
from seamlessflow.control_plane.cluster.services.machines import machine_edit
from seamlessflow.control_plane.cluster.services.phases import phase_move
from seamlessflow.control_plane.common.models import Event
from seamlessflow.control_plane.jobs.models import Job
from seamlessflow.control_plane.policies.models import PolicyVersion
from seamlessflow.control_plane.policies.services.versions import leftovers_clear, versions_prune
from seamlessflow.control_plane.scheduling.models import Phase
from seamlessflow.control_plane.telemetry.models import LedgerInterval, MetricPoint
from seamlessflow.control_plane.telemetry.services import points as telemetry_services
from seamlessflow.control_plane.worker_protocol.beats import JOBS_PER_PAGE
from seamlessflow.core.lifecycle.phases import PhaseState
from seamlessflow.core.protocol.worker import (
    Capabilities,
    EngineReport,
    Interval,
    PhaseReport,
    Publication,
    PublicationReply,
    WeightsArrival,
)
from seamlessflow.core.sizing.job_needs import device_memory
from seamlessflow.core.types.desired_state import MachineEdit
from seamlessflow.core.types.ids import IdKind, show_id
from seamlessflow.core.types.ledger import IdleCause, LedgerState
from seamlessflow.core.types.tags import Role
from seamlessflow.core.types.transports import WeightTransport
from tests.fixtures.control_plane import (
    Cast,
    Worker,
    order_of,
    phase_make,
    publication_of,
    weights_file,
    worker_make,
    worker_post,
)
from tests.fixtures.machine_devices import gpu
from tests.fixtures.stored_files import artifact_path, job_folder

MAX_HEARTBEAT_QUERIES = 1


def report(phase: Phase, state: PhaseState, **fields: object) -> PhaseReport:
    return PhaseReport(phase_id=phase.id, fence=phase.fence, state=state, **fields)  # type: ignore[arg-type]


def serving(phase: Phase, version: int, **fields: object) -> PhaseReport:
    engine = EngineReport(replica=0, endpoint="http://127.0.0.1:9", served_version=version)
    return report(phase, PhaseState.ACTIVE, endpoints=[engine], **fields)


def idle(seq: int, start_s: float, end_s: float) -> Interval:
    return Interval(seq=seq, state=LedgerState.IDLE, cause=IdleCause.NO_JOB, start_s=start_s, end_s=end_s)


def publish(publication: Publication, credential: str) -> tuple[int, bytes]:
    response = worker_post("publications", msgspec.json.encode(publication), secret=credential)
    return response.status_code, response.content


def test_weight_transfers_are_measured_and_a_failed_one_leaves_an_event(cast: Cast) -> None:
    job, beta = cast.job(is_running=True), worker_make("beta", "rollout")
    phase = phase_make(job, beta.machine, Role.ROLLOUT)

    def serve(version: int, transport: str, fallback: str = "") -> None:
        arrival = WeightsArrival(
            version=version,
            transport=WeightTransport(transport),
            num_bytes=0 if fallback else 1_000,
            seconds=0.5,
            fallback=fallback,
            staged_bytes=[300, 400] if version == 1 else [],
        )
        for _ in range(2):  # heartbeats repeat what is
            beta.heartbeat(phases=[serving(phase, version, arrival=arrival)])

    beta.heartbeat(phases=[report(phase, PhaseState.STARTING)])
    serve(1, "ipc")
    serve(2, "file", "the trainer\0 is gone")

    points = MetricPoint.objects.filter(job=job).values_list("name", "step", "value")
    assert sorted(points) == [
        ("perf/weights_file_bytes", 2, 0.0),
        ("perf/weights_file_s", 2, 0.5),
        ("perf/weights_ipc_bytes", 1, 1_000.0),
        ("perf/weights_ipc_s", 1, 0.5),
        ("perf/weights_worker_bytes", 1, 400.0),
    ]
    event = Event.objects.get(kind="weights.fallback")
    assert (event.subject_id, event.author) == (phase.id, "machine:beta")
    assert event.reason == "the trainer\ufffd is gone"
    assert event.data == {"machine_id": str(beta.machine.id), "version": 2}


def test_engines_of_a_phase_are_stored_one_by_one_and_a_lost_one_leaves_an_event(cast: Cast) -> None:
    job, beta = cast.job(is_running=True), worker_make("beta", "rollout")
    phase = phase_make(job, beta.machine, Role.ROLLOUT)
    first, second = (
        EngineReport(replica=number, endpoint=f"http://b:{number}", served_version=3) for number in (0, 1)
    )
    lost = EngineReport(replica=0, problem="engine 0 was killed by SIGKILL")

    def tell(*engines: EngineReport) -> None:
        for num_in_flight in (1, 2):  # what comes and goes is not stored
            told = [msgspec.structs.replace(engine, num_in_flight=num_in_flight) for engine in engines]
            beta.heartbeat(phases=[report(phase, PhaseState.ACTIVE, endpoints=told)])
        phase.refresh_from_db()

    beta.heartbeat(phases=[report(phase, PhaseState.STARTING, endpoints=[])])
    tell(first, second)
    assert phase.engines == msgspec.to_builtins([first, second])
    tell(lost, second)
    assert phase.engines == msgspec.to_builtins([lost, second])
    event = Event.objects.get(kind="engine.lost")
    assert event.reason == f"{lost.problem}; it is started again, and the others of beta go on"
    assert event.data == {"machine": "beta", "phase_id": str(phase.id), "replica": 0}
    tell(first, second)
    assert phase.engines == msgspec.to_builtins([first, second])
    beta.heartbeat(phases=[report(phase, PhaseState.FAILED, reason="gone")])
    phase.refresh_from_db()
    assert phase.engines == []


def test_orders_repeat_until_the_phase_is_over(cast: Cast) -> None:
    job, beta = cast.job(is_running=True), worker_make("beta", "rollout")
    phase = phase_make(job, beta.machine, Role.ROLLOUT)

    (order,) = beta.heartbeat().orders
    assert (order.phase_id, order.fence, order.weights.version, order.is_draining) == (phase.id, 1, 0, False)
    assert order.weights.uri == cast.model.as_uri()
    beta.heartbeat(phases=[report(phase, PhaseState.STARTING)])
    beta.heartbeat(phases=[serving(phase, 0)])
    phase.refresh_from_db()
    assert (phase.state, phase.served_version, phase.boot_id) == ("active", 0, beta.boot_id)
    assert phase_move(phase_id=phase.id, to=PhaseState.DRAINING, reason="train", author="scheduler")
    assert beta.heartbeat(phases=[report(phase, PhaseState.ACTIVE)]).orders[0].is_draining
    reply = beta.heartbeat(phases=[report(phase, PhaseState.ENDED)])

    assert reply.orders == []
    moves = Event.objects.filter(subject_id=phase.id).order_by("id").values_list("to_state", flat=True)
    assert list(moves) == ["starting", "active", "draining", "ended"]


def test_a_report_with_an_old_fence_changes_nothing(cast: Cast) -> None:
    job, beta = cast.job(is_running=True), worker_make("beta", "rollout")
    phase = phase_make(job, beta.machine, Role.ROLLOUT)
    stale = msgspec.structs.replace(report(phase, PhaseState.FAILED), fence=phase.fence - 1)

    beta.heartbeat(phases=[stale])

    phase.refresh_from_db()
    assert phase.state == "leased"


def test_a_new_boot_fails_the_phases_that_the_old_one_had_started_and_keeps_the_others(cast: Cast) -> None:
    job, beta = cast.job(is_running=True), worker_make("beta", "rollout")
    taken = phase_make(job, beta.machine, Role.ROLLOUT)
    beta.heartbeat()
    beta.heartbeat(phases=[report(taken, PhaseState.STARTING)])
    beta.reboot()
    beta.heartbeat()
    taken.refresh_from_db()
    job.refresh_from_db()
    assert (taken.state, taken.failure_cause, job.num_failures) == ("failed", "silence", 0)
    assert "restarted" in taken.reason

    untaken = phase_make(job, beta.machine, Role.ROLLOUT)
    beta.reboot()

    assert beta.heartbeat().orders[0].phase_id == untaken.id


def test_warm_processes_follow_tags_placement_cordon_and_the_desired_state(cast: Cast) -> None:
    cast.job(is_running=True, placement={"train": ["big"]})
    alpha = worker_make("alpha", "rollout", "train")

    assert [warm_process.role for warm_process in alpha.heartbeat().warm_processes] == [Role.ROLLOUT]
    machine_edit(
        machine_id=alpha.machine.id, edit=MachineEdit(tags=["train", "big"]), reason="test", author="system"
    )
    (warm_process,) = alpha.heartbeat().warm_processes
    assert (warm_process.role, warm_process.spec["train"]["num_updates"]) == (Role.TRAIN, 2)
    machine_edit(
        machine_id=alpha.machine.id, edit=MachineEdit(is_cordoned=True), reason="test", author="system"
    )
    assert alpha.heartbeat().warm_processes == []


def test_a_warm_process_says_what_it_needs_of_each_device(cast: Cast) -> None:
    config = {
        "model_type": "qwen3",
        "num_hidden_layers": 2,
        "hidden_size": 8,
        "num_attention_heads": 2,
        "vocab_size": 100,
    }
    (cast.model / "config.json").write_text(json.dumps(config))
    weights_file(cast.model / "model.safetensors", {"model.embed_tokens.weight": (100, 8)})
    job, alpha = cast.job(is_running=True), worker_make("alpha", "rollout", "train")
    assert {one.device_bytes for one in alpha.heartbeat().warm_processes} == {0}, "its devices are not known"
    said = Capabilities(devices=[gpu(0)], num_cores=1, memory_bytes=1, engine_kinds=["embedded"])

    warm_processes = alpha.heartbeat(capabilities=said).warm_processes

    needs, memory = job.resolved.needs, device_memory([gpu(0)])
    assert needs is not None
    assert memory is not None
    needed = {one.role: (one.device_bytes, one.usual_device_bytes) for one in warm_processes}
    assert needed == {role: needs.bytes_at_work(role, memory) for role in (Role.ROLLOUT, Role.TRAIN)}
    certain, usual = needed[Role.TRAIN]
    assert certain == 16 * 800, "weights, gradients, optimizer states"
    assert usual > certain, "activations"


def test_a_job_behind_many_that_do_not_fit_is_kept_warm(cast: Cast) -> None:
    for number in range(JOBS_PER_PAGE):
        cast.job(is_running=True, name=f"job {number}", placement={"rollout": ["big"]})
    fits, beta = cast.job(is_running=True, name="fits"), worker_make("beta", "rollout")

    assert [warm_process.job_id for warm_process in beta.heartbeat().warm_processes] == [fits.id]


def test_a_machine_of_many_jobs_keeps_those_at_work_then_those_whose_trainer_state_it_has(cast: Cast) -> None:
    jobs = [cast.job(is_running=True, name=f"job {number}") for number in range(7)]
    beta = worker_make("beta", "train")

    def warm() -> list[UUID]:
        return [warm_process.job_id for warm_process in beta.heartbeat().warm_processes]

    assert warm() == [job.id for job in jobs[:4]]
    for job in (jobs[5], jobs[3]):
        phase = phase_make(job, beta.machine, Role.TRAIN)
        Phase.objects.filter(id=phase.id).update(state=PhaseState.ENDED)
    assert warm() == [jobs[3].id, jobs[5].id, jobs[0].id, jobs[1].id]

    phase = phase_make(jobs[6], beta.machine, Role.TRAIN)
    Phase.objects.filter(id=phase.id).update(next_role=Role.TRAIN, next_job=jobs[4])
    assert warm() == [jobs[6].id, jobs[4].id, jobs[3].id, jobs[5].id]
    Job.objects.filter(id=jobs[3].id).update(train_fence=99)  # it has moved to another machine
    assert warm() == [jobs[6].id, jobs[4].id, jobs[5].id, jobs[0].id]


def test_a_trainer_saves_at_the_end_of_its_turn_if_others_may_push_its_process_out(cast: Cast) -> None:
    jobs = [cast.job(is_running=True, name=f"job {number}") for number in range(6)]
    beta = worker_make("beta", "train")
    saved = []
    for job in jobs:
        phase = phase_make(job, beta.machine, Role.TRAIN)
        (order,) = beta.heartbeat().orders
        saved.append(order.leaves_checkpoint)
        Phase.objects.filter(id=phase.id).update(state=PhaseState.ENDED)
    assert saved == [False, False, True, True, True, True]

    Job.objects.filter(id__in=[job.id for job in jobs[:3]]).update(desired="pause")
    phase_make(jobs[5], beta.machine, Role.TRAIN)
    assert not beta.heartbeat().orders[0].leaves_checkpoint
    machine_edit(
        machine_id=beta.machine.id, edit=MachineEdit(is_cordoned=True), reason="test", author="system"
    )
    assert beta.heartbeat().orders[0].leaves_checkpoint  # no process stays on a cordoned machine


def test_a_paused_job_has_no_warm_processes(cast: Cast) -> None:
    job, beta = cast.job(is_running=True), worker_make("beta", "rollout")
    Job.objects.filter(id=job.id).update(desired="pause")

    assert beta.heartbeat().warm_processes == []


def test_intervals_are_stored_once_and_are_adjacent(cast: Cast) -> None:
    beta = worker_make("beta", "rollout")
    first = [idle(0, 90.0, 95.25), idle(1, 95.25, 99.5)]

    assert beta.heartbeat(intervals=first).num_intervals_acked == 2
    beta.monotonic_s = 103.7  # a delayed heartbeat does not move the anchor
    assert beta.heartbeat(intervals=[*first, idle(2, 99.5, 103.0)]).num_intervals_acked == 3

    rows = list(LedgerInterval.objects.filter(machine=beta.machine).order_by("started_at"))
    assert [row.seq for row in rows] == [0, 1, 2]
    assert [row.ended_at for row in rows[:-1]] == [row.started_at for row in rows[1:]]
    assert (rows[-1].ended_at - rows[0].started_at).total_seconds() == pytest.approx(13.0)


def test_a_forged_heartbeat_books_neither_the_future_nor_time_twice(cast: Cast) -> None:
    job, beta = cast.job(is_running=True), worker_make("beta", "rollout")
    beta.heartbeat(intervals=[idle(0, 90.0, 99.0)])

    def forged(seq: int, start_s: float, end_s: float) -> Interval:
        return Interval(seq=seq, state=LedgerState.SERVING, job_id=job.id, start_s=start_s, end_s=end_s)

    beta.heartbeat(
        intervals=[
            forged(1, 0.0, 99.5),
            forged(1, 99.5, 99.8),
            forged(2, 99.9, 1000.0),
            forged(3, 1000.0, 1900.0),
        ]
    )
    beta.heartbeat(intervals=[forged(4, 50.0, 99.9)])
    beta.reboot()
    beta.heartbeat(intervals=[forged(0, 0.0, 4.0)])

    rows = list(LedgerInterval.objects.filter(machine=beta.machine).order_by("started_at"))
    assert [row.ended_at for row in rows[:-1]] == [row.started_at for row in rows[1:]], "they touch"
    assert sum((row.ended_at - row.started_at).total_seconds() for row in rows) < 40.0, "the wall time since"
    assert rows[-1].ended_at < timezone.now() + timedelta(seconds=20)


def test_the_ledger_of_a_restarted_machine_adds_up_to_wall_time(cast: Cast) -> None:
    beta = worker_make("beta", "rollout")
    beta.heartbeat(
        intervals=[idle(0, 60.0, 99.0)],
        open_state=LedgerState.IDLE,
        open_cause=IdleCause.NO_JOB,
        open_since_s=99.0,
    )
    # The last word of the old boot was 30 s ago; the machine came back 5 s before its new first heartbeat.
    with connection.cursor() as cursor:
        cursor.execute("UPDATE cluster_machineheartbeat SET received_at = received_at - interval '30 s'")
        cursor.execute(
            "UPDATE telemetry_ledgerinterval SET started_at = started_at - interval '31 s',"
            " ended_at = ended_at - interval '31 s'"
        )
    beta.reboot()
    beta.heartbeat(
        intervals=[Interval(seq=0, state=LedgerState.STARTING, start_s=0.0, end_s=4.0)],
        open_state=LedgerState.IDLE,
        open_cause=IdleCause.NO_JOB,
        open_since_s=4.0,
    )

    rows = list(LedgerInterval.objects.filter(machine=beta.machine).order_by("started_at"))
    assert [row.state for row in rows] == ["idle", "idle", "down", "starting"]
    assert [row.ended_at for row in rows[:-1]] == [row.started_at for row in rows[1:]]
    shown = json.loads(
        cast.owner.call("GET", f"machines/{show_id(IdKind.MACHINE, beta.machine.id)}/ledger").content
    )
    assert sum(total["duration_s"] for total in shown["totals"]) == pytest.approx(shown["window_s"], abs=1e-3)
    assert sum(total["share"] for total in shown["totals"]) == pytest.approx(1.0)
    assert {(total["state"], total["cause"]) for total in shown["totals"]} == {
        ("idle", "no_job"),
        ("down", ""),
        ("starting", ""),
    }


def test_a_heartbeat_without_changes_needs_few_queries_and_notifies_nobody(cast: Cast) -> None:
    job, beta = cast.job(is_running=True), worker_make("beta", "rollout")
    phase = phase_make(job, beta.machine, Role.ROLLOUT)
    active = serving(phase, 0)
    beta.heartbeat(phases=[active])

    with CaptureQueriesContext(connection) as steady:
        beta.heartbeat(phases=[active], open_state=LedgerState.SERVING, open_since_s=99.0)

    queries = [query["sql"] for query in steady if "SAVEPOINT" not in query["sql"]]
    assert len(queries) <= MAX_HEARTBEAT_QUERIES, queries
    assert not any("pg_notify" in query for query in queries)


def test_a_machine_with_an_unknown_token_or_a_broken_body_is_refused(cast: Cast) -> None:
    beta = worker_make("beta", "rollout")

    unknown = worker_post("heartbeat", b"{}", secret="sfm_unknown")
    broken = beta.post("heartbeat", b'{"boot_id": 1}')
    future = beta.post(
        "heartbeat", json.dumps({"boot_id": str(uuid4()), "monotonic_s": 1.0, "protocol_version": 9}).encode()
    )

    assert [unknown.status_code, broken.status_code, future.status_code] == [401, 400, 400]
    assert unknown["Content-Type"] == "application/problem+json"
    assert b"boot_id" in broken.content
    assert b"protocol_version" in future.content
    assert not MachineHeartbeat.objects.exists()


def train_phase(cast: Cast) -> tuple[Job, Worker, Phase, str]:
    job, alpha = cast.job(is_running=True), worker_make("alpha", "rollout", "train")
    phase = phase_make(job, alpha.machine, Role.TRAIN)
    return job, alpha, phase, order_of(phase).credential


def test_a_publication_updates_job_engines_and_metrics_in_one_step(cast: Cast) -> None:
    job, _, _, credential = train_phase(cast)
    Job.objects.filter(id=job.id).update(num_failures=2)
    beta = worker_make("beta", "rollout")
    engine = phase_make(job, beta.machine, Role.ROLLOUT)

    status, body = publish(publication_of(job, 1), credential)

    assert status == 200, body
    assert msgspec.json.decode(body, type=PublicationReply) == PublicationReply(
        version=1, is_job_complete=False
    )
    job.refresh_from_db()
    engine.refresh_from_db()
    assert (job.latest_version, job.published_batch, job.num_failures, engine.desired_version) == (1, 1, 0, 1)
    assert MetricPoint.objects.get().step == 1
    assert Event.objects.filter(kind="version.published").count() == 1
    assert publish(publication_of(job, 2), credential)[1] == b'{"version":2,"is_job_complete":true}'


def test_a_repeated_publication_gets_the_same_answer_and_is_stored_once(cast: Cast) -> None:
    job, _, phase, credential = train_phase(cast)
    first = publish(publication_of(job, 1), credential)
    assert phase_move(phase_id=phase.id, to=PhaseState.ENDED, reason="over", author="system")

    assert publish(publication_of(job, 1), credential) == first
    assert PolicyVersion.objects.filter(job=job).count() == 2


@pytest.mark.parametrize(
    "changes,word",
    [
        ({"version": 2}, b"version 2 is out of order"),
        ({"batch_number": 2}, b"batch 2 is out of order"),
        ({"uri": "file:///etc"}, b"ARTIFACT_ROOT"),
        ({"uri": "s3://bucket/weights"}, b"ARTIFACT_ROOT"),
    ],
)
def test_a_publication_out_of_order_or_in_the_wrong_place_is_refused(
    cast: Cast, changes: dict[str, object], word: bytes
) -> None:
    job, _, _, credential = train_phase(cast)

    status, body = publish(publication_of(job, 1, **changes), credential)

    assert status in (400, 409)
    assert word in body
    assert PolicyVersion.objects.filter(job=job).count() == 1


def test_a_replaced_trainer_cannot_publish(cast: Cast) -> None:
    job, _, phase, credential = train_phase(cast)
    Job.objects.filter(id=job.id).update(train_fence=phase.fence + 1)
    fenced_off = publish(publication_of(job, 1), credential)
    Job.objects.filter(id=job.id).update(train_fence=phase.fence)
    assert phase_move(phase_id=phase.id, to=PhaseState.FAILED, reason="gone", author="system")
    over = publish(publication_of(job, 1), credential)

    assert (fenced_off[0], over[0]) == (409, 409)
    assert b"stale" in fenced_off[1]
    assert publish(publication_of(job, 1), credential[:-2] + "xx")[0] == 401


def test_metrics_of_a_phase_are_readable_as_columns(cast: Cast) -> None:
    job, _, _, credential = train_phase(cast)
    for step in (1, 2, 2):
        body = msgspec.json.encode({"step": step, "values": {"reward/mean": step / 2, "loss": 1.0}})
        assert worker_post("metrics", body, secret=credential).status_code == 204

    path = f"jobs/{show_id(IdKind.JOB, job.id)}/metrics?names=reward/mean&from=1"
    shown = json.loads(cast.owner.call("GET", path).content)

    assert list(shown["metrics"]) == ["reward/mean"]
    columns = shown["metrics"]["reward/mean"]
    assert (columns["step"], columns["value"]) == ([1, 2], [0.5, 1.0])


def test_log_chunks_are_joined_by_offset_whatever_is_sent_twice(cast: Cast) -> None:
    _, alpha, phase, _ = train_phase(cast)
    path = f"phases/{phase.id}/logs?stream=train&offset="

    answers = [
        json.loads(alpha.post(f"{path}{offset}", data).content)["next_offset"]
        for offset, data in [(0, b"hello "), (0, b"hello "), (3, b"lo world"), (50, b"lost")]
    ]

    assert answers == [6, 6, 11, 11]
    shown = json.loads(
        cast.owner.call("GET", f"phases/{show_id(IdKind.PHASE, phase.id)}/logs?offset=6").content
    )
    assert (shown["text"], shown["next_offset"], shown["streams"]) == ("world", 11, ["train"])
    assert cast.outsider.call("GET", f"phases/{show_id(IdKind.PHASE, phase.id)}/logs").status_code == 404
    assert worker_make("beta").post(f"{path}0", b"x").status_code == 404


def log_parts_read(cast: Cast, phase: Phase) -> list[dict[str, Any]]:
    """Return everything that is kept, part by part, as a reader of the API gets it."""
    parts: list[dict[str, Any]] = []
    offset = 0
    while True:
        path = f"phases/{show_id(IdKind.PHASE, phase.id)}/logs?offset={offset}"
        part = json.loads(cast.owner.call("GET", path).content)
        if not part["text"]:
            return parts
        parts.append(part)
        offset = part["next_offset"]


def test_the_last_lines_before_a_crash_are_kept_after_a_long_log(cast: Cast) -> None:
    _, alpha, phase, _ = train_phase(cast)
    line, crash = b"step 000001: all is well\n" * 40_000, b"RuntimeError: this is why\n"
    path = f"phases/{phase.id}/logs?stream=train&offset="

    end = 0
    for data in [b"it begins\n", *[line] * 18, crash]:
        assert json.loads(alpha.post(f"{path}{end}", data).content) == {"next_offset": end + len(data)}
        end += len(data)

    text = "".join(part["text"] for part in log_parts_read(cast, phase))
    assert text.startswith("it begins\nstep 000001")
    assert text.endswith(crash.decode())
    assert len(text) <= 16 * 1024 * 1024


def test_a_log_keeps_its_beginning_and_end_and_says_what_is_missing(
    cast: Cast, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(telemetry_services, "LOG_HEAD_BYTES", 4)
    monkeypatch.setattr(telemetry_services, "LOG_TAIL_BYTES", 8)
    _, alpha, phase, _ = train_phase(cast)
    path = f"phases/{phase.id}/logs?stream=train&offset="

    for offset, data in [(0, b"abcdef"), (6, b"ghijkl"), (12, b"mnop"), (16, b"qrst"), (16, b"qrst")]:
        assert json.loads(alpha.post(f"{path}{offset}", data).content)["next_offset"] == offset + len(data)

    parts = log_parts_read(cast, phase)
    told = [(part["offset"], part["num_missing_bytes"], part["text"], part["truncated"]) for part in parts]
    assert told == [(0, 0, "abcd", True), (12, 8, "mnopqrst", False)]
    assert {part["end"] for part in parts} == {20}


def test_a_log_continues_after_what_its_machine_has_lost(cast: Cast) -> None:
    _, alpha, phase, _ = train_phase(cast)
    path = f"phases/{phase.id}/logs?stream=train"
    alpha.post(f"{path}&offset=0", b"head")

    answers = [
        json.loads(alpha.post(f"{path}&offset=100&lost={lost}", b"tail").content)["next_offset"]
        for lost in (0, 95, 96, 96)
    ]

    assert answers == [4, 4, 104, 104]
    parts = log_parts_read(cast, phase)
    assert [(part["num_missing_bytes"], part["text"]) for part in parts] == [(0, "head"), (96, "tail")]


def test_retention_keeps_the_newest_the_pinned_and_those_in_use(cast: Cast) -> None:
    job, _, _, credential = train_phase(cast)
    for version in range(1, 6):
        publication = publication_of(job, version)
        path = artifact_path(publication.uri)
        assert path is not None
        path.mkdir(parents=True)
        (path / "manifest.json").write_text("{}")
        assert publish(publication, credential)[0] == 200
    PolicyVersion.objects.filter(job=job, version=1).update(is_pinned=True)
    slow = phase_make(job, worker_make("beta", "rollout").machine, Role.ROLLOUT)
    Phase.objects.filter(id=slow.id).update(desired_version=2)

    assert versions_prune() == 1
    assert versions_prune() == 0

    deleted = PolicyVersion.objects.exclude(deleted_at=None)
    assert [row.version for row in deleted] == [3]
    root = artifact_path(publication_of(job, 1).uri)
    assert root is not None
    assert sorted(entry.name for entry in root.parent.iterdir()) == ["1", "2", "4", "5"]
    assert cast.model.is_dir()


def test_pruning_keeps_what_is_served_and_what_the_last_two_checkpoints_continue_from(cast: Cast) -> None:
    job, beta, gamma = (
        cast.job(is_running=True),
        worker_make("beta", "train"),
        worker_make("gamma", "rollout"),
    )
    credential = order_of(phase_make(job, beta.machine, Role.TRAIN)).credential
    checkpoints = f"{settings.ARTIFACT_ROOT_URL}/{job.id}/checkpoints"
    for number in range(1, 8):
        changes = {"checkpoint_uri": f"{checkpoints}/batch-{number}"} if number <= 3 else {}
        publication = publication_of(job, number, **changes)
        path = artifact_path(publication.uri)
        assert path is not None
        path.mkdir(parents=True)
        assert publish(publication, credential)[0] == 200
    versions = settings.ARTIFACT_ROOT.resolve() / str(job.id) / "versions"
    leftover = versions / ".deleting-1"
    (leftover / "half").mkdir(parents=True)
    phase = phase_make(Job.objects.get(id=job.id), gamma.machine, Role.ROLLOUT)
    Phase.objects.filter(id=phase.id).update(desired_version=5, served_version=4)

    assert versions_prune() == 1

    assert sorted(entry.name for entry in versions.iterdir()) == ["2", "3", "4", "5", "6", "7"]


def test_pruning_keeps_what_an_engine_may_be_loading(cast: Cast) -> None:
    """One engine serves version 2 and was told of versions 3, 4 … since; one was leased at version
    4 and serves nothing yet."""
    job = cast.job(is_running=True)
    credential = order_of(phase_make(job, worker_make("beta", "train").machine, Role.TRAIN)).credential
    engines: list[Phase] = []
    for number in range(1, 10):
        publication = publication_of(job, number)
        path = artifact_path(publication.uri)
        assert path is not None
        path.mkdir(parents=True)
        assert publish(publication, credential)[0] == 200
        if number in (2, 4):
            machine = worker_make(f"gamma-{number}", "rollout").machine
            engines.append(phase_make(Job.objects.get(id=job.id), machine, Role.ROLLOUT))
    updating, starting = (phase.id for phase in engines)
    Phase.objects.filter(id=updating).update(desired_version=9, served_version=2)

    def left() -> list[str]:
        versions_prune()
        return sorted(entry.name for entry in (job_folder(job.id) / "versions").iterdir())

    assert left() == [str(number) for number in range(2, 10)]
    Phase.objects.filter(id=updating).update(served_version=9)
    assert left() == [str(number) for number in range(4, 10)]
    Phase.objects.filter(id=starting).update(served_version=9)
    assert left() == ["8", "9"]


def test_half_made_folders_of_ended_jobs_are_removed(cast: Cast) -> None:
    ended, alive = cast.job(), cast.job(is_running=True)
    now = timezone.now()
    Job.objects.filter(id=ended.id).update(ended_at=now - timedelta(minutes=5))
    for job in (ended, alive):
        for part in ("versions/.writing-3", "versions/2", "checkpoints/.saving-3"):
            (job_folder(job.id) / part).mkdir(parents=True)
        (job_folder(job.id) / "versions" / ".offer.json").write_text("{}")

    assert leftovers_clear(now=now) == 3
    assert leftovers_clear(now=now) == 0

    assert [path.name for path in (job_folder(ended.id) / "versions").iterdir()] == ["2"]
    assert (job_folder(alive.id) / "versions" / ".writing-3").is_dir(), "its next trainer clears that"
