"""How the tensors of a model folder correspond to the parameters of the model that is made of it.

transformers keeps the experts of a layer in two parameters with one row of experts each, while model folders (and vLLM)
have a tensor for each expert and projection:

    mlp.experts.gate_up_proj [E, 2·I, H]    mlp.experts.<e>.gate_proj.weight and ….up_proj.weight, [I, H] each
    mlp.experts.down_proj    [E, H, I]      mlp.experts.<e>.down_proj.weight [H, I]

with E experts, inner width I and hidden width H; Qwen's, DeepSeek's and GLM's folders alike. Everything else has one
name. This module takes names and shapes and returns `ParameterView`s: which rows of which parameter a tensor is. The
trainer cuts what it publishes by them, engines find where an update belongs, and a loader of a folder finds where a
tensor goes. Invariant: published tensors have the names of the model folder, whatever the model calls its parameters.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

Shape = tuple[int, ...]

_STACKED = re.compile(r"(?P<module>.*\.experts)\.(?P<kind>gate_up_proj|down_proj)")
_OF_EXPERT = re.compile(
    r"(?P<module>.*\.experts)\.(?P<expert>\d+)\.(?P<projection>gate|up|down)_proj\.weight"
)


@dataclass(frozen=True, slots=True)
class ParameterView:
    """A tensor of a model folder as a view of a parameter."""

    parameter: str
    shape: Shape
    expert: int | None = None  # along the parameter's first axis; None: the view is the whole parameter
    begin: int = 0  # first row within the expert

    def of(self, whole: Any) -> Any:
        """Return this view of the parameter's values: a tensor or an array."""
        if self.expert is None:
            return whole
        return whole[self.expert, self.begin : self.begin + self.shape[0]]


def parameter_views(shapes: Mapping[str, Shape], folder_names: Collection[str]) -> dict[str, ParameterView]:
    """Return the views by their names in the model folder, in the order of the parameters.

    `shapes` are those of the model's parameters and buffers. A stacked parameter is cut unless the folder itself has it
    under that name (as transformers writes some families); without any names the usual form is assumed.
    """
    found: dict[str, ParameterView] = {}
    known = frozenset(folder_names)
    for parameter, shape in shapes.items():
        if parameter not in known and (stacked := _STACKED.fullmatch(parameter)) and len(shape) == len("EOI"):
            found.update(_cut(parameter, shape, module=stacked["module"], kind=stacked["kind"]))
        else:
            found[parameter] = ParameterView(parameter, shape)
    return found


def _cut(parameter: str, shape: Shape, *, module: str, kind: str) -> Iterator[tuple[str, ParameterView]]:
    num_experts, num_rows, num_columns = shape
    projections = ("gate", "up") if kind == "gate_up_proj" else ("down",)
    height = num_rows // len(projections)
    for expert in range(num_experts):
        for number, projection in enumerate(projections):
            name = f"{module}.{expert}.{projection}_proj.weight"
            yield name, ParameterView(parameter, (height, num_columns), expert, number * height)


def router_names(names: Collection[str]) -> list[str]:
    """Return the parameters by which routers choose experts, of all parameters of a model."""
    blocks = {
        stacked["module"].removesuffix(".experts") for name in names if (stacked := _STACKED.fullmatch(name))
    }
    return [name for name in names if name.removesuffix(".gate.weight") in blocks]


def publication_order(name: str) -> tuple[str, int, str]:
    """Return a sort key with which the views of a parameter are adjacent, so that it is gathered once."""
    if (match := _OF_EXPERT.fullmatch(name)) is None:
        return name, 0, ""
    kind = "down" if match["projection"] == "down" else "gate_up"
    return f"{match['module']}.{kind}_proj", int(match["expert"]), match["projection"]
