"""Whatever is sent to `/api/v1` and to the worker protocol, the answer is a 4xx that names what is
wrong."""

import gzip
import io
import json
import tarfile
from typing import Any

import msgspec
import numpy as np
import orjson
import pytest
from django.http import HttpResponse
from django.test import Client
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from safetensors.numpy import save_file

from seamlessflow.control_plane.jobs.models import Job
from seamlessflow.core.protocol.worker import Heartbeat, Interval, MetricReport
from seamlessflow.core.types.ids import IdKind, show_id
from seamlessflow.core.types.ledger import LedgerState
from seamlessflow.core.types.tags import Role
from tests.fixtures.control_plane import (
    Cast,
    Person,
    order_of,
    phase_make,
    publication_of,
    worker_make,
    worker_post,
)

DEEP = 100_000
MANY_EXAMPLES = hypothesis_settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
WILD_TEXT = st.text(st.characters(), max_size=12)
WILD = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | WILD_TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WILD_TEXT, inner, max_size=3),
    max_leaves=6,
)


def raw_post(person: Person, path: str, body: bytes, kind: str = "application/json") -> tuple[int, str]:
    headers = {"Authorization": f"Bearer {person.secret}"}
    response = Client(raise_request_exception=False).generic(
        "POST", f"/api/v1/{path}", body, content_type=kind, headers=headers
    )
    if response.status_code >= 400:
        assert response["Content-Type"] == "application/problem+json", response.content
        assert json.loads(response.content)["detail"]
    return response.status_code, response.content.decode()


@pytest.mark.parametrize(
    "body,kind",
    [(b'{"name": "a", "name": "b"}', "application/json"), (b"name: a\nname: b\n", "application/yaml")],
)
def test_a_key_that_is_given_twice_is_refused_by_name(cast: Cast, body: bytes, kind: str) -> None:
    """The last value won in silence, though unknown keys are refused."""
    status, text = raw_post(cast.owner, "jobs", body, kind)

    assert status == 400
    assert "the key 'name' is given more than once in one mapping" in text


@pytest.mark.parametrize("path", ["jobs", "tokens", "machines"])
@pytest.mark.parametrize(
    "body",
    [
        b"", b"{", b"[]", b"null", b"1e999", b'"text"', b"\xff\xfe", b"{} {}", b'{"name": NaN}',
        b"[" * DEEP, b'{"name":' * DEEP, b'{"name": "a\\u0000b"}', b'{"name": "\\ud800"}',
        b'{"name": 1' + b"0" * 5000 + b"}",
    ],
)  # fmt: skip
def test_invalid_json_and_json_that_is_not_a_mapping_are_refused(cast: Cast, path: str, body: bytes) -> None:
    person = cast.operator if path == "machines" else cast.owner
    assert raw_post(person, path, body)[0] == 400


@pytest.mark.parametrize(
    "body,word",
    [
        (b"a: [", "not valid YAML"),
        (b"\xff\xfe\x00", "not valid YAML"),
        (b"a: 2026-99-99", "not valid YAML"),
        (b"[" * DEEP, "deep"),
        (b"a: &a [x]\nb: [*a, *a]", "aliases"),
        (b"? [1, 2]\n: 3", "not valid YAML"),
        (b"1: 2", "not a text"),
        (b"name: 2026-01-01", "date"),
        (b"seed: .nan", "seed"),
        (b"seed: .inf", "seed"),
        (b"seed: 99999999999999999999999999", "64 bits"),
        (b"name: !!python/object:os.system x", "not valid YAML"),
        (b"name: !!binary aGVsbG8=", "bytes"),
        (b"name: \"a\\0b\"", "NUL"),
        (b"- a", "mapping"),
    ],
)  # fmt: skip
def test_yaml_that_cannot_be_a_spec_is_refused_by_name(cast: Cast, body: bytes, word: str) -> None:
    status, text = raw_post(cast.owner, "jobs", body, "application/yaml")

    assert status == 400
    assert word in text


@MANY_EXAMPLES
@given(
    section=st.sampled_from(["name", "model", "environment", "rollout", "algorithm", "train", "seed"]),
    value=WILD,
)
def test_a_spec_with_any_value_is_accepted_or_refused(cast: Cast, section: str, value: Any) -> None:
    # As a client that knows no better would write it: json.dumps makes NaN and lone surrogates.
    body = json.dumps(cast.spec(**{section: value})).encode()

    assert raw_post(cast.owner, "jobs", body)[0] in (201, 400)


@MANY_EXAMPLES
@given(
    path=st.sampled_from(["tokens", "machines", "jobs/{}/pause", "jobs/{}/cancel"]), key=WILD_TEXT, value=WILD
)
def test_small_bodies_with_any_value_are_accepted_or_refused(
    cast: Cast, path: str, key: str, value: Any
) -> None:
    job = Job.objects.first() or cast.job()
    body = json.dumps({"name": value, "reason": value, "tags": value, "project": value, key: value}).encode()

    assert raw_post(cast.owner, path.format(show_id(IdKind.JOB, job.id)), body)[0] < 500


@pytest.mark.parametrize(
    "change,field,word",
    [
        ({"rollout": {"group_size": 1}}, "rollout.group_size", "at least 2"),
        ({"train": {"adam_betas": [0.9, 1.0]}}, "train.adam_betas.1", "less than 1"),
        ({"train": {"max_grad_norm": 1e300}}, "train.max_grad_norm", "1e+300"),
        ({"train": {"micro_batch_tokens": 10**15}}, "train.micro_batch_tokens", "2147483647"),
        ({"rollout": {"max_tokens_per_turn": 0}}, "rollout.max_tokens_per_turn", "1"),
        ({"model": {"source": "hub://x", "dtype": "float16"}}, "model.dtype", "bfloat16"),
        ({"model": {"source": "/" + "x" * 300}}, "model.source", "accepted"),
    ],
)
def test_a_value_out_of_range_is_named_with_the_accepted_range(
    cast: Cast, change: dict[str, Any], field: str, word: str
) -> None:
    response = cast.owner.call("POST", "jobs", cast.spec(**change))

    assert response.status_code == 400, response.content
    (fault,) = json.loads(response.content)["errors"]
    assert fault["field"] == field
    assert word in fault["detail"]


@pytest.mark.parametrize(
    "config,expected",
    [
        ({"max_position_embeddings": 2048}, 400),
        ({"text_config": {"max_position_embeddings": 2048}}, 400),
        ({"max_position_embeddings": 2048, "rope_parameters": {"rope_type": "default"}}, 400),
        ({"max_position_embeddings": 2048, "rope_scaling": {"rope_type": "yarn", "factor": 4}}, 201),
        ({"max_position_embeddings": 4096}, 201),
        ([], 400),
    ],
)
def test_sequences_longer_than_the_models_positions_are_refused(
    cast: Cast, config: object, expected: int
) -> None:
    (cast.model / "config.json").write_text(
        json.dumps({"model_type": "qwen3", **config} if isinstance(config, dict) else config)
    )

    response = cast.owner.call("POST", "jobs", cast.spec())

    assert response.status_code == expected, response.content
    if isinstance(config, dict) and expected == 400:
        assert b"4096" in response.content
        assert b"2048" in response.content


def test_quantised_weights_are_refused_by_their_method(cast: Cast) -> None:
    config = {"model_type": "qwen3", "quantization_config": {"quant_method": "fp8"}}
    (cast.model / "config.json").write_text(json.dumps(config))
    refused = cast.owner.call("POST", "jobs", cast.spec())
    assert refused.status_code == 400
    (fault,) = json.loads(refused.content)["errors"]
    assert fault["field"] == "model.source"
    assert "are quantised (fp8); convert them to bfloat16 or float32 first" in fault["detail"]


def test_adapter_of_layers_that_the_model_does_not_have_is_refused(cast: Cast) -> None:
    layers = ("q_proj", "k_proj", "norm")
    tensors = {
        f"model.layers.0.{name}.weight": np.zeros((2,) if name == "norm" else (2, 2), dtype=np.float32)
        for name in layers
    }
    save_file(tensors, cast.model / "model.safetensors")
    (cast.model / "config.json").write_text('{"model_type": "qwen3_moe"}')

    def submit(target: str) -> HttpResponse:
        return cast.owner.call(
            "POST", "jobs", cast.spec(train={"lora": {"target_modules": ["q_proj", target]}})
        )

    assert submit("k_proj").status_code == 201
    for target in ("norm", "proj", "qkv_proj"):
        refused = submit(target)
        assert refused.status_code == 400
        (fault,) = json.loads(refused.content)["errors"]
        assert fault["field"] == "train.lora.target_modules"
        assert fault["detail"] == f"{target!r} is not a linear layer of the model; accepted: k_proj, q_proj"
    (cast.model / "model.safetensors").write_bytes(b"no header")
    assert b"model.safetensors" in submit("k_proj").content


def test_adapter_of_experts_is_refused(cast: Cast) -> None:
    layers = ("mlp.gate", "mlp.experts.0.gate_proj", "mlp.shared_experts.up_proj", "self_attn.q_proj")
    tensors = {f"model.layers.0.{name}.weight": np.zeros((2, 2), dtype=np.float32) for name in layers}
    save_file(tensors, cast.model / "model.safetensors")
    (cast.model / "config.json").write_text('{"model_type": "qwen3_moe"}')

    def submit(target: str) -> HttpResponse:
        return cast.owner.call("POST", "jobs", cast.spec(train={"lora": {"target_modules": [target]}}))

    assert submit("q_proj").status_code == 201
    for target in ("gate", "gate_proj", "up_proj"):
        refused = submit(target)
        assert refused.status_code == 400
        (fault,) = json.loads(refused.content)["errors"]
        assert fault["detail"] == (
            f"{target!r} is part of experts or of layers like them, and an adapter of such a model changes attention "
            "only; accepted: q_proj"
        )


MIXTURE = {"model_type": "qwen3_moe", "num_experts": 8}
SPREAD = {"num_ranks": 8, "parallel": {"expert": 4}}


@pytest.mark.parametrize(
    "config,train,field,words",
    [
        (MIXTURE, {"freeze_router": True}, "", ""),
        (MIXTURE, SPREAD, "", ""),
        ({"model_type": "qwen3_5_moe", "text_config": MIXTURE}, SPREAD, "", ""),
        (
            {"model_type": "qwen3"},
            {"freeze_router": True},
            "train.freeze_router",
            "qwen3 model has no router",
        ),
        ({"model_type": "qwen3"}, SPREAD, "train.parallel.expert", "of a qwen3 model cannot be spread"),
        ({**MIXTURE, "num_experts": 6}, SPREAD, "train.parallel.expert", "4 does not divide the model's 6"),
    ],
)
def test_experts_are_what_the_model_has(
    cast: Cast, config: dict[str, Any], train: dict[str, Any], field: str, words: str
) -> None:
    (cast.model / "config.json").write_text(json.dumps(config))

    response = cast.owner.call("POST", "jobs", cast.spec(train=train))

    assert response.status_code == (400 if field else 201), response.content
    if field:
        (fault,) = json.loads(response.content)["errors"]
        assert fault["field"] == field
        assert words in fault["detail"]


def test_an_empty_file_of_tasks_and_a_task_with_a_nul_are_refused(cast: Cast) -> None:
    for text, word in (("\n\n", b"0 tasks"), ('{"a": "x\\u0000"}\n', b"line 1 contains a NUL")):
        cast.tasks.write_text(text)
        response = cast.owner.call("POST", "jobs", cast.spec())
        assert response.status_code == 400
        assert word in response.content


@pytest.mark.parametrize(
    "query",
    [
        "jobs?limit=0", "jobs?limit=x", "jobs?offset=-1", "jobs?offset=99999999999999999999", "jobs?state=nowhere",
        "jobs?state=a%00b", "jobs/{job}/metrics?names=a%00b", "jobs/{job}/metrics?from=1e3",
        "jobs/{job}/groups?state=nowhere", "machines/{machine}/ledger?since=0001-01-01T00:00:00Z",
        "machines/{machine}/ledger?until=0001-01-01T00:00:00Z", "machines/{machine}/ledger?since=yesterday",
        "machines/{machine}/ledger?since=2026-13-01T00:00:00Z", "phases/{phase}/logs?offset=-1",
        "phases/{phase}/logs?stream=a%00b",
    ],
)  # fmt: skip
def test_queries_that_make_no_sense_are_refused_by_name(cast: Cast, query: str) -> None:
    job, alpha = cast.job(is_running=True), worker_make("alpha", "rollout")
    phase = phase_make(job, alpha.machine, Role.ROLLOUT)
    path = query.format(
        job=show_id(IdKind.JOB, job.id),
        machine=show_id(IdKind.MACHINE, alpha.machine.id),
        phase=show_id(IdKind.PHASE, phase.id),
    )
    response = cast.owner.call("GET", path)

    assert response.status_code == 400, response.content
    name = query.partition("?")[2].partition("=")[0]
    assert [fault["field"] for fault in json.loads(response.content)["errors"]] == [name]


@pytest.mark.parametrize("tag", ["x", '"x"', "", "-1", "²", "9" * 5000, 'W/"1"'])
def test_an_etag_that_is_not_a_generation_is_refused(cast: Cast, tag: str) -> None:
    alpha = worker_make("alpha", "rollout")
    path = f"machines/{show_id(IdKind.MACHINE, alpha.machine.id)}"
    response = cast.operator.call("PATCH", path, {"reason": "test", "is_cordoned": True}, **{"If-Match": tag})

    assert response.status_code == 400
    assert b"If-Match" in response.content


@pytest.mark.parametrize(
    "shown", ["job_", "job_" + "0" * 26, "x" * 30, "mac_" + "0" * 26, "%00", "..%2f..", "job_" + "é" * 26]
)
def test_an_unknown_identifier_is_not_found(cast: Cast, shown: str) -> None:
    response = cast.owner.call("GET", f"jobs/{shown}")

    assert response.status_code == 404
    assert response["Content-Type"] == "application/problem+json"


@pytest.mark.parametrize("path, kind", [("/api/v1/jobs", "application/problem+json"), ("/", "text/plain")])
def test_an_unknown_host_name_is_refused_by_name(cast: Cast, path: str, kind: str) -> None:
    response = Client().get(path, headers={"Host": "evil.example"})
    assert response.status_code == 400
    assert response["Content-Type"] == kind
    said = response.content.decode()
    assert (
        "Host: 'evil.example' is not a name of this control plane; accepted: those in SEAMLESSFLOW_ALLOWED_HOSTS"
        in said
    )


def tar_of(*names: str) -> bytes:
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w") as tar:
        for name in names:
            tar.addfile(tarfile.TarInfo(name), io.BytesIO())
    return raw.getvalue()


@pytest.mark.parametrize(
    "body",
    [
        b"", b"no tar", tar_of("a", "a"), tar_of("a", "a/b"), tar_of("x" * 300), tar_of("../x"), tar_of("/x"),
        gzip.compress(tar_of("a" * 50, "b"))[:40] + b"\xff" * 200,
        b"\x1f\x8b\x08" + b"\xff" * 64,
    ],
)  # fmt: skip
def test_an_invalid_archive_is_refused_and_leaves_nothing(cast: Cast, settings: Any, body: bytes) -> None:
    upload = io.BytesIO(body)
    upload.name = "model.tar"
    response = Client(raise_request_exception=False).post(
        "/api/v1/uploads?unpack=true",
        {"file": upload},
        headers={"Authorization": f"Bearer {cast.owner.secret}"},
    )

    assert response.status_code == 400, response.content
    assert json.loads(response.content)["errors"][0]["field"] == "file"
    assert [path for path in settings.ARTIFACT_ROOT.rglob("*") if path.is_file()] == []
    assert list(settings.INCOMING_DIR.iterdir()) == []


@pytest.mark.parametrize(
    "change",
    [
        {"monotonic_s": -1.0},
        {"monotonic_s": 1e300},
        {"open_since_s": 1e300},
        {"intervals": [Interval(seq=0, state=LedgerState.SERVING, start_s=1e200, end_s=2e200)]},
        {"intervals": [Interval(seq=2**70, state=LedgerState.SERVING, start_s=1.0, end_s=2.0)]},
        {"intervals": [Interval(seq=0, state=LedgerState.IDLE, start_s=1.0, end_s=2.0)]},
        {"intervals": [Interval(seq=-1, state=LedgerState.SERVING, start_s=1.0, end_s=2.0)]},
    ],
)
def test_a_heartbeat_with_impossible_times_is_refused(cast: Cast, change: dict[str, Any]) -> None:
    alpha = worker_make("alpha", "rollout")
    fields: dict[str, Any] = {"boot_id": alpha.boot_id, "monotonic_s": 1.0} | change
    body = Heartbeat(**fields)

    answered = alpha.post("heartbeat", msgspec.json.encode(body))

    assert answered.status_code in (200, 400), answered.content


@pytest.mark.parametrize("body", [b"", b"[]", b"{" * DEEP, b'{"boot_id":' * DEEP, b"\xff", b'{"boot_id": 1}'])
def test_a_worker_that_sends_nonsense_is_told_so(cast: Cast, body: bytes) -> None:
    job, beta = cast.job(is_running=True), worker_make("beta", "train")
    credential = order_of(phase_make(job, beta.machine, Role.TRAIN)).credential

    assert beta.post("heartbeat", body).status_code == 400
    for path in ("publications", "metrics"):
        assert worker_post(path, body, secret=credential).status_code == 400


def test_names_and_numbers_that_fit_no_column_are_refused(cast: Cast) -> None:
    job, beta = cast.job(is_running=True), worker_make("beta", "train")
    credential = order_of(phase_make(job, beta.machine, Role.TRAIN)).credential
    reports = [
        MetricReport(step=2**70, values={"a": 1.0}), MetricReport(step=-1, values={"a": 1.0}),
        MetricReport(step=1, values={"a\0b": 1.0}), MetricReport(step=1, values={"a" * 200: 1.0}),
    ]  # fmt: skip
    changes: list[dict[str, Any]] = [
        {"uri": "file://[x"}, {"uri": "file:///%00"}, {"uri": "s3://x"}, {"manifest_sha256": "x" * 100},
        {"num_bytes": 2**70}, {"optimizer_step": -1}, {"optimizer_step": 2**70}, {"metrics": {"a\0": 1.0}},
        {"parent_version": -(2**70)},
    ]  # fmt: skip
    bodies = [("metrics", msgspec.json.encode(report)) for report in reports]
    bodies += [("metrics", orjson.dumps({"step": 1})[:-1] + b',"values":{"a":NaN}}')]
    bodies += [("publications", msgspec.json.encode(publication_of(job, 1, **change))) for change in changes]
    for path, body in bodies:
        answered = worker_post(path, body, secret=credential)
        assert answered.status_code == 400, (body, answered.content)
