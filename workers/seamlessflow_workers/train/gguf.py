"""Turns a model in a GGUF file into a model folder: `python -m seamlessflow_workers.train.gguf FILE FOLDER`.

Takes one file, as llama.cpp reads it; writes float32 weights as safetensors, the configuration, the tokenizer and the
chat template, by transformers' own reader. A quantized weight is replaced by the number that it stands for, so nothing
more is lost, but what quantization had lost stays lost: trained weights are never quantized again. Invariant: the
folder appears whole or not at all.
"""

import argparse
import copy
import logging
import shutil
import sys
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig, PreTrainedModel
from transformers.integrations.gguf.reader import read_gguf_metadata

from seamlessflow_workers.train.gguf_splits import splits_correct

MAX_SHARD = "2GB"

logger = logging.getLogger(__name__)


class NotConvertible(RuntimeError):
    """transformers cannot read the file; the message says why."""


def gguf_convert(file: Path, folder: Path) -> None:
    """Write the model folder. Raises NotConvertible; OSError if it cannot be written."""
    aside = folder.with_name(f".writing-{folder.name}")
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir(parents=True)
    try:
        _convert(file, aside)
        aside.rename(folder)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _convert(file: Path, folder: Path) -> None:
    try:
        tokenizer = AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name, local_files_only=True)
        splits_correct(tokenizer.backend_tokenizer, read_gguf_metadata(str(file))[0])
        read = AutoModelForCausalLM.from_pretrained(
            file.parent,
            gguf_file=file.name,
            local_files_only=True,
            dtype=torch.float32,
            quantization_config=GgufConfig(dequantize=True),
        )
    except (ImportError, KeyError, NotImplementedError, RuntimeError, TypeError, ValueError) as error:
        raise NotConvertible(f"{file.name} cannot be read: {error}") from error
    _plain(read).save_pretrained(folder, max_shard_size=MAX_SHARD)
    tokenizer.save_pretrained(folder)
    for path in folder.iterdir():
        path.chmod(0o644)  # weights are saved for their owner alone, but machines may run as other users
    num_parameters = sum(parameter.numel() for parameter in read.parameters())
    template = "no chat template" if tokenizer.chat_template is None else "its chat template"
    logger.info("%s: %.0f million parameters, %s", file.name, num_parameters / 1e6, template)


def _plain(read: PreTrainedModel) -> PreTrainedModel:
    """Return the same weights in a model that does not know that they were quantized: one that was is not saved."""
    config = copy.deepcopy(read.config)
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    with torch.device("meta"):  # takes no memory: the weights are shared
        plain: PreTrainedModel = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    plain.load_state_dict(read.state_dict(), assign=True)
    plain.tie_weights()
    return plain


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="seamlessflow_workers.train.gguf", description=__doc__.splitlines()[0]
    )
    parser.add_argument("file", type=Path, help="the GGUF file")
    parser.add_argument("folder", type=Path, help="the model folder to write; it must not exist")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    if arguments.folder.exists():
        parser.error(f"{arguments.folder} exists already")
    try:
        gguf_convert(arguments.file, arguments.folder)
    except (NotConvertible, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
