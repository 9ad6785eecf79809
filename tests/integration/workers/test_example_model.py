"""The built example model: an ordinary Hugging Face folder that starts low enough to learn, and is made only once."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from transformers import AutoModelForCausalLM, AutoTokenizer

from seamlessflow_workers.agents.environments.calc_tool import CALC_TOOL
from seamlessflow_workers.example import build
from seamlessflow_workers.example.tasks import ExampleEnvironment, iter_tasks
from seamlessflow_workers.example.transcripts import ChatTemplate, Transcript
from tests.fixtures.repository import ROOT

NUM_TASKS = 192
FILES = {
    "config.json",
    "model.safetensors",
    "tokenizer.json",
    "tokenizer_config.json",
    "generation_config.json",
    "chat_template.jinja",
    build.KEY_FILE,
}


@pytest.fixture(scope="module")
def cache() -> Path:
    """The checkout's, which the acceptance tests use too: one build, a minute long, serves all."""
    return ROOT / ".seamlessflow" / "cache"


@pytest.fixture(scope="module")
def model_folder(cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build.example_model_ensure(tmp_path_factory.mktemp("models") / "calculator", cache=cache)


def build_in_process(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'platform'}:{ROOT / 'workers'}"}
    command = [sys.executable, "-X", "importtime", "-m", "seamlessflow_workers.example", *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True)


@pytest.mark.slow
def test_the_folder_loads_like_any_other(model_folder: Path) -> None:
    assert {path.name for path in model_folder.iterdir()} == FILES
    model = AutoModelForCausalLM.from_pretrained(model_folder)
    assert model.config.model_type == "qwen3"
    assert 800_000 <= model.num_parameters() <= 1_000_000
    assert model.dtype is torch.float32
    assert model.config.tie_word_embeddings
    with safe_open(model_folder / "model.safetensors", "pt") as weights:
        assert "model.embed_tokens.weight" in weights.keys()  # noqa: SIM118 - not a mapping


@pytest.mark.slow
def test_transformers_renders_the_template_as_the_builder_does(model_folder: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(model_folder)
    messages = [{"role": "user", "content": "What is 285*966?"}]
    ours = ChatTemplate().render(Transcript(messages, [CALC_TOOL]), is_generation_prompt_added=True)
    theirs = tokenizer.apply_chat_template(
        messages, tools=[dict(CALC_TOOL)], add_generation_prompt=True, tokenize=False
    )
    assert theirs == ours
    assert tokenizer.eos_token == "<|im_end|>"


@pytest.mark.slow
def test_the_warm_start_leaves_right_use_rare_but_present(model_folder: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(model_folder)
    model: Any = AutoModelForCausalLM.from_pretrained(model_folder)
    torch.manual_seed(0)
    tasks = list(iter_tasks(ExampleEnvironment.CALCULATOR, num_tasks=NUM_TASKS, seed=0))
    template = ChatTemplate()
    prompts = [
        template.render(
            Transcript([{"role": "user", "content": task.question}], [CALC_TOOL]),
            is_generation_prompt_added=True,
        )
        for task in tasks
    ]
    tokens = tokenizer(prompts, return_tensors="pt", add_special_tokens=False)
    answers = model.generate(**tokens, do_sample=True, top_k=0, top_p=1.0, max_new_tokens=16)
    said = tokenizer.batch_decode(answers[:, tokens["input_ids"].shape[1] :])
    calls = [
        f'"{task.question[8:-1]}"' in text and "<tool_call>" in text
        for task, text in zip(tasks, said, strict=True)
    ]
    guesses = ["<tool_call>" not in text for text in said]
    assert 0.08 < sum(calls) / NUM_TASKS < 0.45
    assert 0.25 < sum(guesses) / NUM_TASKS < 0.70


@pytest.mark.slow
def test_a_second_build_comes_from_the_cache_without_torch(
    model_folder: Path, cache: Path, tmp_path: Path
) -> None:
    started_at = time.monotonic()
    again = build_in_process("--out", str(tmp_path / "again"), "--cache", str(cache))
    assert again.returncode == 0, again.stderr
    assert time.monotonic() - started_at < 5.0
    assert "torch" not in {line.rsplit("|", 1)[-1].strip() for line in again.stderr.splitlines()}
    weights = [folder / "model.safetensors" for folder in (model_folder, tmp_path / "again")]
    assert weights[0].read_bytes() == weights[1].read_bytes()


@pytest.mark.slow
def test_another_model_in_the_way_is_replaced_and_a_foreign_folder_is_not(
    model_folder: Path, cache: Path, tmp_path: Path
) -> None:
    older = tmp_path / "older"
    older.mkdir()
    (older / build.KEY_FILE).write_text("0" * 16)
    build.example_model_ensure(older, cache=cache)
    assert {path.name for path in older.iterdir()} == {path.name for path in model_folder.iterdir()}

    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "thesis.txt").write_text("dear")
    refused = build_in_process("--out", str(foreign), "--cache", str(cache))
    assert refused.returncode == 1
    assert "exists and is not an example model" in refused.stderr
    assert [path.name for path in foreign.iterdir()] == ["thesis.txt"]
    assert {path.name for path in tmp_path.iterdir()} == {"older", "foreign"}


def test_the_key_depends_on_environment_and_seed() -> None:
    keys = {
        build.content_key(environment, seed=seed) for environment in ExampleEnvironment for seed in (0, 1)
    }
    assert len(keys) == 4


@pytest.mark.slow
def test_config_names_the_end_of_turn(model_folder: Path) -> None:
    config = json.loads((model_folder / "generation_config.json").read_text())
    vocabulary = json.loads((model_folder / "tokenizer.json").read_text())["added_tokens"]
    ids = {token["content"]: token["id"] for token in vocabulary}
    assert config["eos_token_id"] == ids["<|im_end|>"]
    assert config["pad_token_id"] == ids["<|endoftext|>"]
