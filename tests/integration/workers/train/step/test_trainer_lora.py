"""Adapters through real DeepSpeed: exact in every ZeRO stage, published alone, killed and resumed to the bit."""

import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from seamlessflow.core.job_spec import JobSpec
from seamlessflow.core.protocol.child import Ended, Ready
from seamlessflow.core.protocol.worker import Publication
from seamlessflow_workers.rollout.engine.model.loading import LoadOptions, load_runner
from seamlessflow_workers.weights.artifacts import JobArtifacts
from seamlessflow_workers.weights.manifest import manifest_read
from seamlessflow_workers.weights.transports.file.receiving import weights_check
from tests.fixtures.trainer_harness import (
    DEADLINE_S,
    JOB,
    Planes,
    PublicationLost,
    TrainerProcess,
    folder_with,
    make_spec,
    run_check,
)
from tests.integration.workers.train.step.trainer_lora_check import CASES, PREFIX

NUM_UPDATES = 5
CHECKPOINT_EVERY = 2
RANK = 2
LORA = {"rank": RANK, "alpha": 4.0, "dropout": 0.1}

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def rows(trainer_model: Path) -> dict[str, dict[str, Any]]:
    return run_check(["tests.integration.workers.train.step.trainer_lora_check", str(trainer_model)])


@pytest.mark.parametrize("case", CASES)
def test_step_equals_the_float64_model_with_merged_weights(rows: dict[str, Any], case: str) -> None:
    row = rows[case]
    assert row["loss_error"] < 1e-5
    assert row["grad_norm_error"] < 1e-5
    assert row["worst_gradient_error"] < 1e-5 * row["grad_norm"]
    assert row["grad_norm"] > 1e-2
    assert abs(row["kl_reference"]) > 1e-5  # the reference is the model without its adapter
    assert row["starts_as_the_model"]


@pytest.mark.parametrize("case", CASES)
def test_fresh_engine_goes_on_from_a_checkpoint_to_the_bit(rows: dict[str, Any], case: str) -> None:
    assert rows[case]["is_resumed_to_the_bit"]


def test_only_the_named_layers_are_adapted(rows: dict[str, Any]) -> None:
    layers = {name.split(".")[-3] for name in rows["some layers"]["names"]}
    assert layers == {"q_proj", "down_proj"}
    everywhere = {name.split(".")[-3] for name in rows["stage 0"]["names"]}
    assert everywhere == {f"{part}_proj" for part in ("q", "k", "v", "o", "gate", "up", "down")}


class Run:
    """A job of LoRA in its own folder, its trainers started one after another."""

    def __init__(self, folder: Path, model: Path, planes: Planes, **train: Any) -> None:
        self.folder, self.planes = folder_with(model, folder), planes
        self.spec = make_spec(
            num_updates=NUM_UPDATES, checkpoint_every_updates=CHECKPOINT_EVERY, lora=LORA, **train
        )
        self.num_phases = 0

    def start(self) -> TrainerProcess:
        self.num_phases += 1
        trainer = TrainerProcess(self.folder, self.planes, self.spec)
        trainer.receive_until(Ready)
        trainer.begin(self.num_phases)
        return trainer

    def to_the_end(self) -> None:
        trainer = self.start()
        try:
            trainer.receive_until(Ended)
        finally:
            trainer.kill()

    def version(self, number: int) -> Path:
        return JobArtifacts((self.folder / "artifacts").as_uri(), JOB).versions / str(number)

    def digests(self) -> list[dict[str, str]]:
        versions = range(1, NUM_UPDATES + 1)
        manifests = [manifest_read(self.version(number)) for number in versions]
        return [{name: file.sha256 for name, file in manifest.files.items()} for manifest in manifests]


@pytest.fixture(scope="module")
def undisturbed(
    tmp_path_factory: pytest.TempPathFactory, trainer_model: Path, start_planes: Callable[..., Planes]
) -> Run:
    run = Run(
        tmp_path_factory.mktemp("undisturbed") / "run", trainer_model, start_planes(num_updates=NUM_UPDATES)
    )
    run.to_the_end()
    return run


def test_version_is_the_adapter_alone_in_the_format_of_peft(undisturbed: Run, trainer_model: Path) -> None:
    folder = undisturbed.version(NUM_UPDATES)
    weights_check(folder, version=NUM_UPDATES)
    assert {file.name for file in folder.iterdir()} == {
        "manifest.json",
        "adapter_config.json",
        "adapter_model.safetensors",
    }
    tensors = load_file(folder / "adapter_model.safetensors")
    assert all(name.startswith(PREFIX) and ".lora_" in name for name in tensors)
    model = AutoModelForCausalLM.from_pretrained(trainer_model)
    linear = [layer for layer in model.model.layers.modules() if isinstance(layer, torch.nn.Linear)]
    num_numbers = sum(RANK * (layer.in_features + layer.out_features) for layer in linear)
    manifest = manifest_read(folder)
    assert manifest.total_bytes == 4 * num_numbers
    publication = undisturbed.planes.publications[NUM_UPDATES]
    model_bytes = sum(4 * parameter.numel() for parameter in model.parameters())
    headers = publication.num_bytes - manifest.total_bytes
    assert manifest.total_bytes < 0.11 * model_bytes  # rank 2 of a model 32 wide
    assert publication.num_bytes == sum(file.stat().st_size for file in folder.iterdir())
    assert headers < 20_000, "names, shapes and the configuration; not a weight of the model"


def test_checkpoint_holds_nothing_of_the_frozen_model(undisturbed: Run) -> None:
    checkpoints = undisturbed.folder / "artifacts" / str(JOB) / "checkpoints"
    (state,) = (checkpoints / f"batch-{NUM_UPDATES}").rglob("*.safetensors")
    saved = load_file(state)
    assert sum(".lora_" in name for name in saved) > 8
    assert all(".lora_" in name or name.startswith("random/") for name in saved)


def test_engine_serves_what_peft_makes_of_the_version(undisturbed: Run, trainer_model: Path) -> None:
    folder = undisturbed.version(NUM_UPDATES)
    runner = load_runner(
        LoadOptions(
            model=trainer_model,
            weights=folder,
            dtype=torch.float32,
            device=torch.device("cpu"),
            max_model_len=32,
            num_slots=1,
        )
    )
    base = AutoModelForCausalLM.from_pretrained(trainer_model)
    before = {name: tensor.clone() for name, tensor in base.state_dict().items()}
    merged = PeftModel.from_pretrained(base, str(folder)).merge_and_unload().state_dict()
    num_changed = 0
    for name, parameter in runner._decoder.parameters.items():
        assert torch.allclose(parameter, merged[name], atol=1e-7)
        num_changed += not torch.equal(merged[name], before[name])
    assert num_changed == 2 * 7  # the linear layers of both blocks


@pytest.mark.timeout(600)
@pytest.mark.parametrize("train", [{}, {"zero_stage": 2, "num_ranks": 2}, {"zero_stage": 3, "num_ranks": 2}])
def test_killed_anywhere_the_versions_are_the_same_to_the_bit(
    tmp_path: Path,
    trainer_model: Path,
    start_planes: Callable[..., Planes],
    train: dict[str, Any],
    undisturbed: Run,
) -> None:
    """Kill -9 before version 1 is recorded (no checkpoint yet), before 2 (its checkpoint is written), after 3."""
    expected = undisturbed
    if train:
        expected = Run(
            tmp_path / "undisturbed", trainer_model, start_planes(num_updates=NUM_UPDATES), **train
        )
        expected.to_the_end()
    run = Run(tmp_path / "killed", trainer_model, start_planes(num_updates=NUM_UPDATES), **train)
    trainer: TrainerProcess
    kills_left = {1, 2, 3}

    def kill(publication: Publication, *, versions: set[int]) -> None:
        if publication.version in kills_left & versions:
            kills_left.remove(publication.version)
            trainer.process.kill()
            if publication.version < 3:
                raise PublicationLost

    run.planes.before_publication = lambda publication: kill(publication, versions={1, 2})
    run.planes.after_publication = lambda publication: kill(publication, versions={3})
    for _ in range(3):
        trainer = run.start()
        others = psutil.Process(trainer.process.pid).children()
        assert trainer.process.wait(DEADLINE_S) == -signal.SIGKILL
        trainer.close()
        psutil.wait_procs(others, timeout=DEADLINE_S)
    run.to_the_end()
    assert not kills_left
    assert run.planes.conflicts == []
    assert list(run.planes.publications) == list(range(1, NUM_UPDATES + 1))
    assert run.digests() == expected.digests()


def test_configuration_has_the_same_bytes_in_every_process(undisturbed: Run) -> None:
    """Peft writes the names of layers in the order of a set, which differs from process to process."""
    raw = (undisturbed.version(1) / "adapter_config.json").read_bytes()
    config = json.loads(raw)
    assert config["target_modules"] == sorted(config["target_modules"])
    assert (config["r"], config["lora_alpha"], config["peft_type"]) == (RANK, 4.0, "LORA")


def test_layer_that_the_model_does_not_have_is_one_clear_sentence(
    tmp_path: Path, trainer_model: Path, start_planes: Callable[..., Planes]
) -> None:
    folder_with(trainer_model, tmp_path)
    spec = make_spec(lora={"target_modules": ["q_proj", "qkv_proj"]})
    JobSpec.model_validate(spec)
    trainer = TrainerProcess(tmp_path, start_planes(num_updates=NUM_UPDATES), spec)
    assert trainer.receive() is None
    trainer.close()
    log = (tmp_path / "trainer.log").read_text()
    assert (
        "train.lora.target_modules: 'qkv_proj' is no linear layer of Qwen3ForCausalLM that can be adapted; it has "
        "down_proj," in log
    )
    assert "Traceback" not in log
