"""Models for acceptance tests: the example model (cached beside the checkout) and one that never
ends an answer."""

import fcntl
import json
import shutil
import subprocess
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file
from transformers import AutoConfig, AutoModelForCausalLM

from tests.fixtures.repository import ROOT

CACHE = ROOT / ".seamlessflow" / "cache"
ENDLESS_LENGTH = 4096
ENDLESS_HIDDEN = 256


def example_model(folder: Path) -> Path:
    """The calculator model of the demo. Of several processes, one makes it, and the others wait."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with CACHE.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        _run("seamlessflow_workers.example", "--out", str(folder), "--cache", str(CACHE), "--seed", "0")
    return folder


def example_tasks(file: Path) -> Path:
    _run(
        "seamlessflow_workers.example.tasks",
        *("--environment", "calculator", "--num", "500", "--seed", "0", "--out", str(file)),
    )
    return file


def endless_model(folder: Path, *, like: Path) -> Path:
    """A random model with the example's tokenizer that almost never samples an end token, for long
    streams.

    Every residual has a large constant in dimension 0. The heads of the special tokens read only
    this dimension, with a negative weight, so their logits stay far below all others whatever the
    weights in between do.
    """
    shutil.copytree(like, folder)
    for weights in folder.glob("*.safetensors"):
        weights.unlink()
    config = AutoConfig.from_pretrained(folder)
    config.hidden_size, config.intermediate_size = ENDLESS_HIDDEN, 3 * ENDLESS_HIDDEN
    config.max_position_embeddings, config.tie_word_embeddings = ENDLESS_LENGTH, False
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    added = json.loads((folder / "tokenizer.json").read_text())["added_tokens"]
    with torch.no_grad():
        model.model.embed_tokens.weight[:, 0] = 3.0
        model.lm_head.weight[:, 0] = 0.0
        for token in added:
            model.lm_head.weight[token["id"]] = 0.0
            model.lm_head.weight[token["id"], 0] = -3.0
    config.save_pretrained(folder)
    save_file(dict(model.state_dict()), folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def _run(module: str, *arguments: str) -> None:
    subprocess.run([sys.executable, "-m", module, *arguments], check=True, stdin=subprocess.DEVNULL)
