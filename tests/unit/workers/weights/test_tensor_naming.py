"""Tensors of a model folder and the parameters that they are parts of."""

from itertools import pairwise

import numpy as np

from seamlessflow_workers.weights.naming import parameter_views, publication_order, router_names

NUM_EXPERTS, INNER, HIDDEN = 3, 2, 5
BLOCK = "model.layers.1.mlp"
SHAPES = {
    "model.embed_tokens.weight": (7, HIDDEN),
    f"{BLOCK}.gate.weight": (NUM_EXPERTS, HIDDEN),
    f"{BLOCK}.gate.e_score_correction_bias": (NUM_EXPERTS,),
    f"{BLOCK}.experts.gate_up_proj": (NUM_EXPERTS, 2 * INNER, HIDDEN),
    f"{BLOCK}.experts.down_proj": (NUM_EXPERTS, HIDDEN, INNER),
    f"{BLOCK}.shared_experts.down_proj.weight": (HIDDEN, INNER),
    "model.layers.0.mlp.gate_proj.weight": (4, HIDDEN),
}


def test_experts_of_a_folder_are_exactly_the_stacked_parameter() -> None:
    values = {name: np.arange(np.prod(shape)).reshape(shape) for name, shape in SHAPES.items()}
    views = parameter_views(SHAPES, ())
    tensors = {name: view.of(values[view.parameter]) for name, view in views.items()}
    for name, view in views.items():
        assert tensors[name].shape == view.shape
    for expert in range(NUM_EXPERTS):
        gate, up, down = (
            tensors[f"{BLOCK}.experts.{expert}.{part}_proj.weight"] for part in ("gate", "up", "down")
        )
        assert (np.concatenate([gate, up]) == values[f"{BLOCK}.experts.gate_up_proj"][expert]).all()
        assert (down == values[f"{BLOCK}.experts.down_proj"][expert]).all()
    assert len(views) == len(SHAPES) - 2 + 3 * NUM_EXPERTS
    assert sum(tensor.size for tensor in tensors.values()) == sum(array.size for array in values.values())


def test_piece_is_a_view_through_which_a_parameter_is_written() -> None:
    stacked = np.zeros(SHAPES[f"{BLOCK}.experts.gate_up_proj"])
    views = parameter_views(SHAPES, ())
    views[f"{BLOCK}.experts.1.up_proj.weight"].of(stacked)[:] = 1
    assert stacked[1, INNER:].all()
    assert stacked.sum() == INNER * HIDDEN


def test_parameter_that_the_folder_itself_has_keeps_its_name() -> None:
    views = parameter_views(SHAPES, SHAPES)
    assert views.keys() == SHAPES.keys()
    assert all(view.expert is None for view in views.values())


def test_pieces_of_a_parameter_lie_side_by_side_when_published() -> None:
    views = parameter_views(SHAPES, ())
    parameters = [views[name].parameter for name in sorted(views, key=publication_order)]
    assert sum(before != after for before, after in pairwise(parameters)) == len(SHAPES) - 1


def test_router_is_the_gate_of_a_block_with_experts() -> None:
    names = [*SHAPES, "model.layers.2.mlp.gate.weight"]  # of a block without experts
    assert router_names(names) == [f"{BLOCK}.gate.weight"]
