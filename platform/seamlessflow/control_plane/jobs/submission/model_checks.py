"""Checks what a spec asks of its model against the model's configuration and the headers of its weights.

Takes a model folder and sections of the spec; each check raises ApplicationError naming the field of the spec.
"""

from collections.abc import Iterable

from seamlessflow.control_plane.common.errors import ApplicationError, FieldFault, field_error
from seamlessflow.control_plane.jobs.submission.model_folder import FIELD, ModelFolder
from seamlessflow.core.model_tensors import adaptable_layers, is_of_routed_expert
from seamlessflow.core.sizing.model_shape import InvalidModelConfig, ModelShape, model_shape
from seamlessflow.core.training.divisors import divisors_named
from seamlessflow.core.training.section import EXPERT_PARALLEL_FAMILIES, TrainSection
from seamlessflow.runtime.model_folders import model_folder_problems

NUM_EXPERTS = ("num_experts", "n_routed_experts", "num_local_experts")  # as families name it


def files_check(model: ModelFolder) -> None:
    """Refuse files of which it is clear already that nothing can load them, with a fault for each problem.

    Engines and trainers ask the same again before they load (`runtime.model_folders`). Nothing is built as large as the
    configuration says.
    """
    try:
        problems = list(model_folder_problems(model.path))
    except OSError as error:
        raise field_error(FIELD, f"the files of {model.name} cannot be read: {error}") from error
    if problems:
        faults = tuple(FieldFault(FIELD, f"{model.name}/{problem}") for problem in problems)
        raise ApplicationError("; ".join(f"{FIELD}: {fault.detail}" for fault in faults), faults=faults)


def numbers_check(model: ModelFolder) -> None:
    """Refuse weights that no trainer can train as they are stored."""
    quantized = model.config.get("quantization_config")
    if not quantized:
        return
    method = str(quantized.get("quant_method")) if isinstance(quantized, dict) else "unknown method"
    raise field_error(
        FIELD,
        f"the weights of {model.name} are quantised ({method}); convert them to bfloat16 or float32 first, because "
        "they are trained",
    )


def context_check(model: ModelFolder, max_model_len: int) -> None:
    """Refuse sequences that are longer than the model has positions for."""
    num_positions = model.config.get("max_position_embeddings")
    # Scaled positions reach further than this number; only the model's code knows how far.
    rope = model.config.get("rope_parameters") or model.config.get("rope_scaling") or {}
    is_scaled = not isinstance(rope, dict) or rope.get("rope_type", rope.get("type", "default")) != "default"
    if isinstance(num_positions, int) and not is_scaled and max_model_len > num_positions:
        raise field_error(
            "model.max_model_len",
            f"{max_model_len} is more than the model's max_position_embeddings, which is {num_positions}",
        )


def experts_check(model: ModelFolder, train: TrainSection) -> None:
    """Refuse options for experts that the model does not have or that cannot be spread."""
    if not train.freeze_router and train.parallel.expert == 1:
        return
    found = (model.config.get(name) for name in NUM_EXPERTS)
    num_experts = next((value for value in found if isinstance(value, int)), 0)
    family = str(model.config.get("model_type"))
    if train.freeze_router and not num_experts:
        raise field_error("train.freeze_router", f"a {family} model has no router; leave it out")
    if train.parallel.expert == 1:
        return
    field, accepted = "train.parallel.expert", ", ".join(EXPERT_PARALLEL_FAMILIES)
    if family not in EXPERT_PARALLEL_FAMILIES:
        raise field_error(
            field, f"experts of a {family} model cannot be spread; accepted: 1, or a model of {accepted}"
        )
    if num_experts % train.parallel.expert:
        raise field_error(
            field,
            f"{train.parallel.expert} does not divide the model's {num_experts} experts; accepted: their divisors",
        )


def heads_check(model: ModelFolder, train: TrainSection) -> None:
    """Refuse more processes for a sequence than can have equally many attention heads.

    A model whose configuration names its heads otherwise is checked when the trainer loads it.
    """
    num_sharing = train.parallel.sequence
    num_heads = model.config.get("num_attention_heads") if num_sharing > 1 else None
    if isinstance(num_heads, int) and num_heads % num_sharing:
        raise field_error(
            "train.parallel.sequence",
            f"{num_sharing} does not divide the model's {num_heads} attention heads; "
            f"accepted: {divisors_named(num_heads)}",
        )


def lora_targets_check(model: ModelFolder, targets: Iterable[str]) -> None:
    """Refuse a name with which no layer that can be adapted ends."""
    matrices = {
        tensor.name.removesuffix(".weight")
        for tensor in model.tensors
        if tensor.name.endswith(".weight") and len(tensor.shape) == 2
    }
    layers = adaptable_layers(matrices, is_mixture=any(map(is_of_routed_expert, matrices)))
    for target in targets:
        if _ends(target, layers):
            continue
        known = sorted({name.rsplit(".", 1)[-1] for name in layers if ".layers." in name})
        reason = (
            "is part of experts or of layers like them, and an adapter of such a model changes attention only"
            if _ends(target, matrices)
            else "is not a linear layer of the model"
        )
        raise field_error("train.lora.target_modules", f"{target!r} {reason}; accepted: {', '.join(known)}")


def _ends(target: str, names: Iterable[str]) -> bool:
    return any(name == target or name.endswith(f".{target}") for name in names)


def shape_of(model: ModelFolder) -> ModelShape | None:
    """Return the shape of a model, or None if its configuration lacks the usual numbers: the memory that it needs is
    then unknown, so no machine is ruled out because of it."""
    try:
        return model_shape(model.document, [(tensor.name, tensor.shape) for tensor in model.tensors])
    except InvalidModelConfig:
        return None
