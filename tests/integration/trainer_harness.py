"""A tiny model, made-up batches and stand-ins for gateway and control plane, for the tests of the trainer."""

import dataclasses
import json
import os
import secrets
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

import msgspec
import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save

from seamlessflow.core.batching.format import Batch, BatchHeader, batch_decode, batch_encode
from seamlessflow.core.batching.tree_layout import NO_PARENT
from seamlessflow.core.protocol.child import (
    Begin,
    Begun,
    Doing,
    Ended,
    Failed,
    FromChild,
    Ready,
    ToChild,
    decode_from_child,
    encode_line,
)
from seamlessflow.core.protocol.data_plane import BatchLeaseRequest
from seamlessflow.core.protocol.worker import (
    GangOrder,
    PhaseOrder,
    Publication,
    PublicationReply,
    WarmProcess,
    WeightsReference,
)
from seamlessflow.core.types.tags import Role

JOB = UUID("01890000-0000-7000-8000-00000000000a")
PROJECT = UUID("01890000-0000-7000-8000-00000000000b")
VOCABULARY = 64
DEADLINE_S = 90.0
CREDENTIAL = "sfp_test"
Message = TypeVar("Message", Ready, Begun, Doing, Ended, Failed)

MAKE_MODEL = """
import sys, torch
from transformers import Qwen3Config, Qwen3ForCausalLM
torch.manual_seed(0)
sizes = dict(hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1)
config = Qwen3Config(vocab_size=64, head_dim=16, max_position_embeddings=64, tie_word_embeddings=True, **sizes)
Qwen3ForCausalLM(config).save_pretrained(sys.argv[1])
"""


def child_environment() -> dict[str, str]:
    paths = os.pathsep.join(["platform", "workers", "."])
    return {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}


def make_model(folder: Path) -> None:
    subprocess.run(
        [sys.executable, "-c", MAKE_MODEL, folder], check=True, env=child_environment(), capture_output=True
    )


def folder_with(model: Path, folder: Path) -> Path:
    """A job's folder, made if need be, in which a trainer finds the model."""
    folder.mkdir(exist_ok=True)
    (folder / "model").symlink_to(model)
    return folder


def run_check(module_and_arguments: Sequence[str], **environment: str) -> dict[str, dict[str, Any]]:
    """The rows that a check script printed as JSON lines, by their case; the script must end well."""
    result = subprocess.run(
        [sys.executable, "-m", *module_and_arguments],
        env={**child_environment(), **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    rows = [json.loads(line) for line in result.stdout.splitlines() if line.startswith('{"case"')]
    return {row["case"]: row for row in rows}


def make_batch(number: int, *, is_flat: bool = False, temperature: float = 1.0) -> Batch:
    """Ragged random samples of which some tokens are trained; `is_flat`: without any advantage."""
    rng = np.random.default_rng(number)
    lengths = rng.integers(4, 24, size=10)
    starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    num_tokens = int(starts[-1])
    mask = (rng.random(num_tokens) < 0.5).astype(np.uint8)
    mask[starts[:-1]] = 0
    advantages = np.repeat(rng.normal(size=10), lengths) * mask * (not is_flat)
    behaviour = rng.normal(-np.log(VOCABULARY), 0.2, size=num_tokens) * mask
    header = BatchHeader(
        format_version=2,
        job_id=str(JOB),
        number=number,
        policy_version=number - 1,
        temperature=temperature,
        num_groups=2,
        reward_mean=0.5,
        reward_std=0.5,
    )
    return batch_of_arrays(
        header,
        sample_starts=starts,
        token_ids=rng.integers(0, VOCABULARY, size=num_tokens).astype(np.int32),
        loss_mask=mask,
        behaviour_logprobs=behaviour.astype(np.float32),
        sample_parents=np.full(10, NO_PARENT, dtype=np.int32),
        advantages_positive=np.maximum(advantages, 0).astype(np.float32),
        advantages_negative=np.minimum(advantages, 0).astype(np.float32),
        loss_weights=mask.astype(np.float32),
        versions=np.where(mask != 0, number - 1, -1).astype(np.int32),
        rewards=rng.random(10).astype(np.float32),
        sessions=np.arange(10, dtype=np.int32),
        groups=(np.arange(10) // 5).astype(np.int32),
    )


def batch_of_arrays(header: BatchHeader, **arrays: NDArray[Any]) -> Batch:
    """By way of the bytes of format version 2, which says all there is to say where every session is trained."""
    raw = np.frombuffer(msgspec.json.encode(header), dtype=np.uint8)
    return batch_decode(save({"header": raw, **arrays}))


def make_spec(**train: object) -> dict[str, object]:
    return {
        "name": "trainer test",
        "model": {"source": "artifact://test"},
        "environment": {"name": "external"},
        "algorithm": {"kl_coef": 0.0},
        "train": {"learning_rate": 1e-2, "micro_batch_tokens": 64, "warmup_updates": 4, **train},
    }


RECORDED = {
    "environment": {"name": "none"},
    "data": {"source": "trajectories", "jobs": ["another"]},
    "algorithm": {"name": "sft"},
}


def as_it_is(batch: Batch) -> Batch:
    return batch


def as_recorded(batch: Batch) -> Batch:
    """As the gateway makes them of what other jobs recorded: no version, an advantage of one."""
    trained = (batch.loss_mask != 0).astype(np.float32)
    return dataclasses.replace(
        batch,
        versions=np.full_like(batch.versions, -1),
        advantages_positive=trained,
        advantages_negative=np.zeros_like(trained),
    )


class PublicationLost(Exception):
    """Raised by `before_publication`: the trainer died before its request arrived."""


@dataclass
class Planes:
    """Gateway and control plane in one server that keeps their promises. Start with `start`, end with `stop`."""

    num_updates: int = 6
    flat_batches: frozenset[int] = frozenset()
    change: Callable[[Batch], Batch] = as_it_is
    num_batches_ready: int = 10**6
    before_publication: Callable[[Publication], None] = lambda _publication: None
    after_publication: Callable[[Publication], None] = lambda _publication: None
    num_answers_lost: int = 0  # so many requests get a 503 first
    is_fenced_off: bool = False
    credential: str = CREDENTIAL
    publications: dict[int, Publication] = field(default_factory=dict)
    leases: list[BatchLeaseRequest] = field(default_factory=list)
    conflicts: list[str] = field(default_factory=list)

    def start(self) -> None:
        planes = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                status, answer = planes.answer(self.path, self.headers["Authorization"], body)
                try:
                    self.send_response(status)
                    self.send_header("Content-Length", str(len(answer)))
                    self.end_headers()
                    self.wfile.write(answer)
                except (BrokenPipeError, ConnectionResetError):
                    self.close_connection = True  # the trainer was killed

            def log_message(self, *_arguments: object) -> None:
                return

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_address[1]}"

    def stop(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()

    @property
    def latest_version(self) -> int:
        return max(self.publications, default=0)

    def answer(self, path: str, authorization: str, body: bytes) -> tuple[int, bytes]:
        if authorization != f"Bearer {self.credential}":
            return 401, b'{"detail": "who are you?"}'
        if self.num_answers_lost:
            self.num_answers_lost -= 1
            return 503, b""
        if path == "/trainer/v1/batches/lease":
            return self._lease(msgspec.json.decode(body, type=BatchLeaseRequest))
        if path == "/api/worker/v1/publications":
            return self._publish(msgspec.json.decode(body, type=Publication))
        return 404, b""

    def _lease(self, request: BatchLeaseRequest) -> tuple[int, bytes]:
        self.leases.append(request)
        number = request.number
        give_up_at = time.monotonic() + request.wait_s
        while number > self.num_batches_ready:
            if time.monotonic() > give_up_at:
                return 204, b""
            time.sleep(0.02)
        return 200, batch_encode(self.change(make_batch(number, is_flat=number in self.flat_batches)))

    def _publish(self, publication: Publication) -> tuple[int, bytes]:
        try:
            self.before_publication(publication)
        except PublicationLost:
            return 503, b""
        if self.is_fenced_off:
            return 409, json.dumps({"title": "Conflict", "detail": "phase with fence 7 took over"}).encode()
        known = self.publications.get(publication.version)
        if known is None and publication.version != self.latest_version + 1:
            self.conflicts.append(f"version {publication.version} after {self.latest_version}")
            return 409, b'{"detail": "not the next version"}'
        if known is not None and known.manifest_sha256 != publication.manifest_sha256:
            self.conflicts.append(f"version {publication.version} announced with other weights")
            return 409, b'{"detail": "other weights"}'
        self.publications.setdefault(publication.version, publication)
        self.after_publication(publication)
        is_complete = publication.version >= self.num_updates
        return 200, msgspec.json.encode(
            PublicationReply(version=publication.version, is_job_complete=is_complete)
        )


class TrainerProcess:
    """The real child process at the other end of a control socket."""

    def __init__(
        self,
        folder: Path,
        planes: Planes,
        spec: dict[str, object],
        *,
        prefix: Sequence[str] = (),
        module: str = "seamlessflow_workers.train",
        listening: socket.socket | None = None,
    ) -> None:
        """`prefix` is a command that becomes the trainer, `module` the trainer itself. `listening`: where it meets
        those of other machines."""
        warm_process = WarmProcess(
            job_id=JOB,
            project_id=PROJECT,
            role=Role.TRAIN,
            spec=spec,
            model_path=str(folder / "model"),
            weights=WeightsReference(version=planes.latest_version, uri=""),
            artifact_root=(folder / "artifacts").as_uri(),
            gateway_url=planes.url,
            control_plane_url=planes.url,
        )
        path = folder / f"warm_process-{secrets.token_hex(4)}.json"
        path.write_bytes(msgspec.json.encode(warm_process))
        self.planes = planes
        self.control, theirs = socket.socketpair()
        self.log = (folder / "trainer.log").open("ab")
        command = [
            *prefix,
            sys.executable,
            "-m",
            module,
            "--control-fd",
            str(theirs.fileno()),
            "--warm-process",
            str(path),
        ]
        inherited = [theirs.fileno()]
        if listening is not None:
            command += ["--rendezvous-fd", str(listening.fileno())]
            inherited.append(listening.fileno())
        self.process = subprocess.Popen(
            command,
            pass_fds=inherited,
            env=child_environment(),
            stdout=self.log,
            stderr=self.log,
        )
        theirs.close()
        self.control.settimeout(DEADLINE_S)
        self.lines = self.control.makefile("rb")

    def send(self, message: ToChild) -> None:
        self.control.sendall(encode_line(message))

    def begin(self, phase: int, *, num_batches: int | None = None, gang: GangOrder | None = None) -> UUID:
        phase_id = UUID(int=phase)
        order = PhaseOrder(
            phase_id=phase_id,
            fence=phase,
            role=Role.TRAIN,
            job_id=JOB,
            project_id=PROJECT,
            is_draining=False,
            credential=CREDENTIAL if gang is None or gang.leads else "",
            front_token="",
            weights=WeightsReference(version=self.planes.latest_version, uri=""),
            num_batches=num_batches,
            gang=gang,
        )
        self.send(Begin(order=order))
        return phase_id

    def receive(self) -> FromChild | None:
        """The next message; None when the child closed the socket."""
        line = self.lines.readline()
        return decode_from_child(line) if line else None

    def receive_until(self, kind: type[Message]) -> tuple[Message, list[FromChild]]:
        before: list[FromChild] = []
        while (message := self.receive()) is not None:
            if isinstance(message, kind):
                return message, before
            before.append(message)
        raise AssertionError(f"the trainer closed its socket before {kind.__name__}; it said {before}")

    def kill(self) -> None:
        self.process.kill()
        self.close()

    def close(self) -> None:
        self.lines.close()
        self.control.close()
        self.process.wait(DEADLINE_S)
        self.log.close()
