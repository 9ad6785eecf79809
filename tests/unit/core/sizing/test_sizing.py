"""How much memory a model needs: published models' own numbers, and the arithmetic of ZeRO."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seamlessflow.core.job_spec import JobSpec, job_spec_parse
from seamlessflow.core.sizing.memory_needs import Need, engine_need, size_text, trainer_need
from seamlessflow.core.sizing.model_shape import InvalidModelConfig, ModelShape, model_shape

# As Qwen3-32B publishes it.
CONFIG = {
    "hidden_size": 5120, "num_hidden_layers": 64, "num_attention_heads": 64, "num_key_value_heads": 8,
    "head_dim": 128, "vocab_size": 151_936, "intermediate_size": 25_600,
}  # fmt: skip


def tensors() -> list[tuple[str, tuple[int, ...]]]:
    hidden, vocabulary, inner = 5120, 151_936, 25_600
    layer = [
        ("self_attn.q_proj", (64 * 128, hidden)), ("self_attn.k_proj", (8 * 128, hidden)),
        ("self_attn.v_proj", (8 * 128, hidden)), ("self_attn.o_proj", (hidden, 64 * 128)),
        ("mlp.gate_proj", (inner, hidden)), ("mlp.up_proj", (inner, hidden)), ("mlp.down_proj", (hidden, inner)),
        ("input_layernorm", (hidden,)), ("post_attention_layernorm", (hidden,)),
        ("self_attn.q_norm", (128,)), ("self_attn.k_norm", (128,)),
    ]  # fmt: skip
    named = [(f"model.layers.{number}.{name}.weight", shape) for number in range(64) for name, shape in layer]
    return [
        ("model.embed_tokens.weight", (vocabulary, hidden)),
        *named,
        ("model.norm.weight", (hidden,)),
        ("lm_head.weight", (vocabulary, hidden)),
    ]


SHAPE = model_shape(CONFIG, tensors())


def spec(**sections: dict[str, Any]) -> JobSpec:
    body: dict[str, Any] = {
        "name": "sized",
        "model": {"source": "/models/m", "dtype": "bfloat16", "max_model_len": 65_536},
        "environment": {"name": "external"},
    }
    for name, section in sections.items():
        body[name] = {**body.get(name, {}), **section}
    return job_spec_parse(body)


def bytes_of(need: Need, name: str) -> int:
    return next(use.num_bytes for use in need.uses if use.name == name)


def test_a_published_model_has_its_published_number_of_parameters() -> None:
    assert SHAPE.num_parameters == 32_762_123_264
    assert SHAPE.cached_values == 64 * 2 * 8 * 128


def test_an_engine_needs_its_weights_and_room_for_one_sequence() -> None:
    need = engine_need(spec(rollout={"engine": "vllm"}), SHAPE)
    assert need.least_bytes() == 2 * SHAPE.num_parameters + 65_536 * 131_072 * 2
    assert need.words() == "61.0 GiB of weights, 16.0 GiB of cache for one sequence"
    assert need.least_bytes(8) == need.least_bytes() / 8


def test_the_embedded_engine_has_a_slot_for_each_sequence_which_a_processor_commits_when_it_is_used() -> None:
    need = engine_need(spec(rollout={"max_num_seqs": 4}), SHAPE)
    sequence = 65_536 * 131_072 * 2
    assert need.least_bytes() == 2 * SHAPE.num_parameters + 4 * sequence
    assert need.least_bytes(kind="cpu") == 2 * SHAPE.num_parameters + sequence


def test_compressed_attention_keeps_one_vector_for_keys_and_values() -> None:
    config = CONFIG | {"kv_lora_rank": 512, "qk_rope_head_dim": 64, "num_hidden_layers": 61}
    assert model_shape(config, ()).cached_values == 61 * 576


def test_layers_without_keys_keep_nothing_per_token() -> None:
    config = CONFIG | {"layer_types": ["linear_attention", "linear_attention", "full_attention"] * 4}
    assert model_shape(config, ()).cached_values == 4 * 2 * 8 * 128


@pytest.mark.parametrize("dtype, per_parameter", [("float32", 16), ("bfloat16", 18)])
def test_a_trained_parameter_has_the_bytes_of_adam(dtype: str, per_parameter: int) -> None:
    need = trainer_need(spec(model={"dtype": dtype}), SHAPE)
    assert need.least_bytes() == per_parameter * SHAPE.num_parameters


@given(stage=st.integers(0, 3), num_ranks=st.integers(1, 64))
def test_each_stage_of_zero_shards_one_thing_more(stage: int, num_ranks: int) -> None:
    need = trainer_need(spec(train={"zero_stage": stage}), SHAPE)
    num = SHAPE.num_parameters
    share = {1: num_ranks, 2: num_ranks, 3: num_ranks} | {one: 1 for one in (1, 2, 3) if one > stage}
    assert need.least_bytes(num_ranks) == pytest.approx(
        num * (12 / share[1] + 4 / share[2] + 2 / share[3]), abs=3
    )


def test_an_adapter_has_states_and_the_model_only_weights() -> None:
    need = trainer_need(spec(train={"lora": {"rank": 16, "target_modules": ["q_proj"]}}), SHAPE)
    num_trained = 64 * 16 * (64 * 128 + 5120)
    assert bytes_of(need, "optimizer states") == 12 * num_trained
    assert bytes_of(need, "gradients") == 4 * num_trained
    assert bytes_of(need, "weights") >= 2 * SHAPE.num_parameters


def test_a_critic_is_a_second_model_that_trains_all_its_weights() -> None:
    critic = trainer_need(spec(algorithm={"name": "ppo"}, train={"lora": {"rank": 16}}), SHAPE)
    policy = trainer_need(spec(train={"lora": {"rank": 16}}), SHAPE)
    whole = trainer_need(spec(), SHAPE)
    assert critic.least_bytes() == policy.least_bytes() + whole.least_bytes()
    assert bytes_of(critic, "critic's optimizer states") == bytes_of(whole, "optimizer states")


def mixture() -> ModelShape:
    """Of 8 experts in each layer, and with a layer that predicts a further token."""
    block = [(f"mlp.experts.{number}.up_proj", (100, 50)) for number in range(8)]
    layer = [("self_attn.q_proj", (50, 50)), ("mlp.shared_experts.up_proj", (10, 50)), *block]
    named = [(f"model.layers.{place}.{name}.weight", shape) for place in range(3) for name, shape in layer]
    return model_shape(CONFIG | {"num_hidden_layers": 2}, named)


def test_a_mixture_counts_routed_experts_apart_and_leaves_out_what_is_not_loaded() -> None:
    shape = mixture()
    assert shape.num_routed_parameters == 2 * 8 * 100 * 50
    assert shape.num_parameters == shape.num_routed_parameters + 2 * (50 * 50 + 10 * 50)
    assert shape.adapted_sizes == {"q_proj": 2 * 100}, "adapters change attention only"


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_spread_experts_are_on_one_process_each(stage: int) -> None:
    shape = mixture()
    spread = spec(train={"num_ranks": 4, "zero_stage": stage, "parallel": {"expert": 4}})
    need = trainer_need(spread, shape)
    dense = shape.num_parameters - shape.num_routed_parameters
    whole = dense + shape.num_routed_parameters / 4
    share = {one: whole if stage < one else shape.num_parameters / 4 for one in (2, 3)}
    assert need.least_bytes(4) == 12 * shape.num_parameters / 4 + 4 * share[2] + 2 * share[3]


def test_checkpointing_keeps_only_the_inputs_of_layers() -> None:
    whole, few = (
        bytes_of(trainer_need(spec(train={"gradient_checkpointing": on}), SHAPE), "activations")
        for on in (False, True)
    )
    assert few / whole == pytest.approx((64 + 17) / (64 * 17))


def test_what_is_only_usual_rules_nothing_out() -> None:
    need = trainer_need(spec(), SHAPE)
    assert need.usual_bytes(8) == need.least_bytes(8) + bytes_of(need, "activations")


def test_a_config_without_layers_is_refused_by_name() -> None:
    with pytest.raises(InvalidModelConfig, match="num_hidden_layers is None"):
        model_shape({"hidden_size": 4}, ())


@pytest.mark.parametrize(
    "num_bytes, text", [(61 * 2**30, "61.0 GiB"), (3.4 * 2**20, "3.4 MiB"), (10, "0.1 MiB")]
)
def test_sizes_are_said_in_units_for_people(num_bytes: float, text: str) -> None:
    assert size_text(num_bytes) == text


def test_a_shape_survives_its_way_through_a_row() -> None:
    assert msgspec.convert(msgspec.to_builtins(SHAPE), ModelShape) == SHAPE
