"""The kinds of models that a job may name are those that the installed transformers can train."""

import ast
from importlib.util import find_spec
from pathlib import Path

from seamlessflow.core.model_types import PLAIN_DECODERS, TRAINABLE_MODEL_TYPES


def test_the_list_is_that_of_transformers() -> None:
    spec = find_spec("transformers")
    assert spec is not None
    assert spec.origin is not None
    # Read, not imported, because that takes many seconds.
    source = (Path(spec.origin).parent / "models" / "auto" / "modeling_auto.py").read_text()
    (pairs,) = (
        node.value.args[0]
        for node in ast.parse(source).body
        if isinstance(node, ast.Assign)
        and isinstance(node.value, ast.Call)
        and isinstance(node.targets[0], ast.Name)
        and node.targets[0].id == "MODEL_FOR_CAUSAL_LM_MAPPING_NAMES"
    )
    assert {name for name, _ in ast.literal_eval(pairs)} == TRAINABLE_MODEL_TYPES
    assert PLAIN_DECODERS <= TRAINABLE_MODEL_TYPES
