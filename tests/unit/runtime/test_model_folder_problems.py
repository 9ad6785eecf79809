"""What is wrong with a model folder is found without loading it, and sound folders are left alone."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from seamlessflow.runtime.model_folders import INDEX, SINGLE, model_folder_problems
from tests.fixtures.control_plane import PLAIN_CONFIG, plain_model, plain_shapes, weights_file

Break = Callable[[Path], object]


def header_write(folder: Path, header: object, *, num_data_bytes: int = 0, length: int | None = None) -> None:
    content = json.dumps(header).encode()
    size = (len(content) if length is None else length).to_bytes(8, "little")
    (folder / SINGLE).write_bytes(size + content + bytes(num_data_bytes))


def tensor(shape: object, offsets: object, dtype: object = "F32") -> dict[str, object]:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


def header(*tensors: Mapping[str, object], num_data_bytes: int = 0) -> Break:
    named = {f"t{number}": one for number, one in enumerate(tensors)}
    return lambda folder: header_write(folder, named, num_data_bytes=num_data_bytes)


def config(**changes: Any) -> Break:
    def write(folder: Path) -> None:
        (folder / "config.json").write_text(json.dumps({**PLAIN_CONFIG, **changes}))

    return write


def weights(change: Callable[[dict[str, tuple[int, ...]]], object]) -> Break:
    def write(folder: Path) -> None:
        shapes = plain_shapes(PLAIN_CONFIG)
        change(shapes)
        weights_file(folder / SINGLE, shapes)

    return write


def sharded(places: object, *, shards: Mapping[str, Mapping[str, tuple[int, ...]]]) -> Break:
    def write(folder: Path) -> None:
        (folder / SINGLE).unlink()
        for name, shapes in shards.items():
            weights_file(folder / name, shapes)
        (folder / INDEX).write_text(json.dumps(places))

    return write


ALL = plain_shapes(PLAIN_CONFIG)
HALVES = {
    "model-1.safetensors": dict(list(ALL.items())[:9]),
    "model-2.safetensors": dict(list(ALL.items())[9:]),
}
PLACES = {name: file for file, shapes in HALVES.items() for name in shapes}


@pytest.mark.parametrize(
    "damage,words",
    [
        (header(tensor([2], [-8, 0])), "data_offsets of 't0' is [-8, 0]"),
        (header(tensor([2], [8, 0])), "data_offsets of 't0' are [8, 0]"),
        (header(tensor([2], [0, 8.5])), "data_offsets of 't0' is [0, 8.5]"),
        (header(tensor([2], [0, 8, 16])), "accepted: [begin, end]"),
        (header(tensor([2], [0, 8]), num_data_bytes=4), "tensors end at byte"),
        (header(tensor([2], [0, 8]), num_data_bytes=12), "tensors end at byte"),
        (header(tensor([2**62], [0, 8]), num_data_bytes=8), "by its shape [4611686018427387904]"),
        (header(tensor([-2], [0, 8]), num_data_bytes=8), "shape of 't0' is [-2]"),
        (header(tensor([True], [0, 4]), num_data_bytes=4), "shape of 't0' is [True]"),
        (header(tensor("2", [0, 8]), num_data_bytes=8), "shape of 't0' is '2'"),
        (header(tensor([2], [0, 8], "F33"), num_data_bytes=8), "dtype of 't0' is 'F33'; accepted: BOOL"),
        (header(tensor([2], [0, 8]), tensor([2], [4, 12]), num_data_bytes=12), "'t1' overlaps"),
        (header(tensor([2], [0, 8]), tensor([2], [12, 20]), num_data_bytes=20), "'t1' leaves a gap"),
        (header({"dtype": "F32"}), "lacks data_offsets, shape of 't0'"),
        (lambda folder: header_write(folder, {"__metadata__": {"a": 1}}), "__metadata__"),
        (lambda folder: header_write(folder, [1]), "not a mapping"),
        (lambda folder: header_write(folder, {}, length=10**9), "no safetensors header of 1 to"),
        (lambda folder: header_write(folder, {}, length=1000), "should have 1000 bytes"),
        (lambda folder: header_write(folder, {}, length=1), "cannot be read"),
        (lambda folder: (folder / SINGLE).write_bytes(b""), "no safetensors header"),
        (lambda folder: (folder / SINGLE).write_text("a Git LFS pointer"), "no safetensors header"),
        (lambda folder: (folder / SINGLE).unlink(), f"{SINGLE} and {INDEX} are missing"),
        (config(num_hidden_layers="x" * 100), "num_hidden_layers is 'xxx"),
        (config(num_hidden_layers="2"), "num_hidden_layers is '2'; accepted: a whole number from 1 on"),
        (config(num_hidden_layers=2.0), "num_hidden_layers is 2.0"),
        (config(num_hidden_layers=True), "num_hidden_layers is True"),
        (config(num_hidden_layers=-1), "num_hidden_layers is -1"),
        (config(num_hidden_layers=10**9), "num_hidden_layers is 1000000000, which is too large"),
        (config(num_hidden_layers=3), "num_hidden_layers is 3, but the safetensors files have 2 layers"),
        (config(vocab_size=10**12), "vocab_size is 1000000000000, which is too large"),
        (config(vocab_size=600), "embed_tokens.weight has the shape [512, 16], but config.json says vocab_size 600"),
        (config(vocab_size=0), "vocab_size is 0"),
        (config(hidden_size=10**7), "hidden_size is 10000000, which is too large"),
        (config(hidden_size=24), "hidden_size 24"),
        (config(num_attention_heads=0), "num_attention_heads is 0; accepted: a whole number from 1 on"),
        (config(num_attention_heads=4), "q_proj.weight has the shape [16, 16], but config.json calls for [32, 16]"),
        (config(num_attention_heads=10**9), "q_proj.weight has the shape"),
        (config(num_attention_heads=3, num_key_value_heads=2), "a divisor of num_attention_heads, which is 3"),
        (config(num_key_value_heads="1"), "num_key_value_heads is '1'"),
        (config(head_dim=16), "but config.json calls for [32, 16]"),
        (config(head_dim=[8]), "head_dim is [8]"),
        (config(intermediate_size=10**12), "but config.json calls for [1000000000000, 16]"),
        (config(intermediate_size={"a": 1}), "intermediate_size is {'a': 1}"),
        (config(max_position_embeddings="many"), "max_position_embeddings is 'many'"),
        (config(rms_norm_eps="small"), "rms_norm_eps is 'small'; accepted: a number above 0"),
        (config(num_experts=-4), "num_experts is -4"),
        (config(model_type="evil"), "model_type is 'evil'; accepted: a kind of causal language model"),
        (config(model_type="qwen33"), "such as qwen3"),
        (config(model_type=["qwen3"]), "model_type is ['qwen3']"),
        (config(model_type=None), "model_type is None"),
        (config(tie_word_embeddings=False), "lack lm_head.weight"),
        (lambda folder: (folder / "config.json").write_text("[1]"), "config.json cannot be read: it is not a JSON"),
        (lambda folder: (folder / "config.json").write_text("{"), "config.json cannot be read"),
        (weights(lambda shapes: shapes.pop("model.norm.weight")), "files lack model.norm.weight"),
        (weights(lambda shapes: shapes.pop("model.layers.1.mlp.up_proj.weight")), "lack model.layers.1.mlp.up_proj"),
        (weights(lambda shapes: shapes.update({"model.norm.weight": (17,)})), "norm.weight has the shape [17]"),
        (weights(lambda shapes: shapes.clear()), "too large for the 0 numbers"),
        (sharded({}, shards=HALVES), f"{INDEX} has no weight_map"),
        (sharded({"weight_map": {}}, shards=HALVES), f"{INDEX} has a weight_map that names no file"),
        (lambda folder: (folder / "config.json").write_text("\ufeff{}"), "begins with a byte order mark"),
        (sharded({"weight_map": [1]}, shards=HALVES), f"{INDEX} has no weight_map"),
        (
            sharded({"weight_map": {**PLACES, "a": "model-3.safetensors"}}, shards=HALVES),
            "names model-3.safetensors, which the folder lacks",
        ),
        (
            sharded({"weight_map": {**PLACES, "model.norm.weight": "../secret"}}, shards=HALVES),
            "names ../secret, which the folder lacks",
        ),
        (
            sharded({"weight_map": {**PLACES, "model.norm.weight": "model-1.safetensors"}}, shards=HALVES),
            "says that model.norm.weight is in model-1.safetensors, which does not have it",
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_loaded_is_named_with_its_file(tmp_path: Path, damage: Break, words: str) -> None:
    plain_model(tmp_path)
    assert list(model_folder_problems(tmp_path)) == []
    damage(tmp_path)
    (problem, *_) = model_folder_problems(tmp_path)
    assert words in problem or words in "; ".join(model_folder_problems(tmp_path))


@pytest.mark.parametrize(
    "change",
    [
        weights(lambda shapes: shapes.update({"model.layers.0.self_attn.rotary_emb.inv_freq": (4,)})),
        weights(lambda shapes: shapes.update({"lm_head.weight": (512, 16)})),  # tied, and stored all the same
        weights(lambda shapes: shapes.update({"model.layers.2.mtp.weight": (3,)})),  # predicts a token more
        weights(lambda shapes: shapes.update({"empty": (0, 7)})),
        sharded({"metadata": {"total_size": 1}, "weight_map": PLACES}, shards=HALVES),
        config(time_step_limit=[0.0, float("inf")], clip=float("nan")),  # as configs of Mamba models have it
        config(num_experts=None, intermediate_size=32, rope_theta=10000),
        config(model_type="gemma3", num_hidden_layers=None, text_config={"model_type": "gemma3_text"}),
        config(quantization_config={"quant_method": "gptq"}, vocab_size=99999),  # refused by its method
    ],
)
def test_what_transformers_loads_is_left_alone(tmp_path: Path, change: Break) -> None:
    plain_model(tmp_path)
    change(tmp_path)
    assert list(model_folder_problems(tmp_path)) == []


def test_a_file_that_cannot_be_read_may_be_the_fault_of_the_machine(tmp_path: Path) -> None:
    plain_model(tmp_path)
    (tmp_path / "config.json").unlink()
    with pytest.raises(FileNotFoundError):
        list(model_folder_problems(tmp_path))
