"""A causal language model that computes logits only where they are trained.

It takes a local folder in the transformers format. For N chosen positions it returns the logprob and entropy of the
distribution that was really sampled (logits divided by the sampler's temperature, under the masks of guides). The
positions are selected before the output head, so the model's forward pass is unchanged otherwise. If N × vocabulary
logits were many, the head returns those two figures instead and never has all logits at once.
"""

import logging
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, PreTrainedModel
from transformers.utils import logging as transformers_logging

from seamlessflow.core.job_spec import Dtype, LoraSection
from seamlessflow_workers.process.input_faults import InputFault, input_faults, model_check
from seamlessflow_workers.train.sequence_parallel.attention import SequencePass
from seamlessflow_workers.train.sequence_parallel.collectives import ALONE, SequenceGroup
from seamlessflow_workers.train.sequence_parallel.support import sequence_attention_enable
from seamlessflow_workers.train.step.activations import checkpointed_layers, checkpoints_enable
from seamlessflow_workers.train.step.adapter import Adapter, adapter_attach
from seamlessflow_workers.train.step.loading.partitioned import (
    can_load_in_parts,
    full_shape,
    gathered_in_calls,
    is_partitioned,
    partitioned_load,
)
from seamlessflow_workers.train.step.sampled import Masks
from seamlessflow_workers.train.step.sampling_head import SampledTokens, SamplingHead
from seamlessflow_workers.train.step_engine import ModelLoadError, ModelRefused
from seamlessflow_workers.train.trees.blocks import TreeBlocks
from seamlessflow_workers.train.trees.support import PROBE_TOKEN_IDS, tree_attention_enable
from seamlessflow_workers.weights.naming import router_names

logger = logging.getLogger(__name__)

_NUM_NAMED = 3  # of the missing parameters, in an error
_DTYPES = {Dtype.FLOAT32: torch.float32, Dtype.BFLOAT16: torch.bfloat16}


class Policy(nn.Module):
    """Wraps the model; parameters keep their names after the prefix `model.`."""

    def __init__(
        self,
        model: nn.Module,
        *,
        has_gradient_checkpoints: bool = False,
        keeps_inputs_on_host: bool = False,
        has_entropy_gradient: bool = False,
        adapter: Adapter | None = None,
    ) -> None:
        super().__init__()
        self.model = model
        self.config = model.config  # DeepSpeed reads the routers' settings in it
        self.adapter = adapter
        self._has_gradient_checkpoints = has_gradient_checkpoints
        if has_gradient_checkpoints:
            checkpoints_enable(model, is_on_host=keeps_inputs_on_host)
        head = model.get_output_embeddings()  # type: ignore[operator]
        assert isinstance(head, nn.Module)
        assert isinstance(head.weight, Tensor)
        self._head = SamplingHead(head, has_entropy_gradient=has_entropy_gradient)
        self.num_logits = full_shape(head.weight)[0]
        self.is_partitioned = is_partitioned(head.weight)
        names = {id(module): name for name, module in model.named_modules()}
        self.head_name = f"{names[id(head)]}.weight"
        if adapter is not None:
            self.register_state_dict_post_hook(_keep_trained)
        self.eval()  # without the model's own dropout, so that trained logprobs are those of the sampler

    def train(self, mode: bool = True) -> "Policy":
        super().train(False)
        for dropout in self.adapter.dropouts() if self.adapter else ():
            dropout.training = True  # requested by the job, and no property of the model
        if self._has_gradient_checkpoints:
            # A layer drops its activations only in training mode; the modules inside it stay without dropout.
            for layer in checkpointed_layers(self):
                layer.training = True
        return self

    def use_dropout(self, is_used: bool) -> None:
        """Switch the dropout that the job asked for on or off."""
        for dropout in self.adapter.dropouts() if self.adapter else ():
            dropout.training = is_used

    def forward(
        self,
        token_ids: Tensor,
        rows: Tensor,
        columns: Tensor,
        targets: Tensor,
        temperature: float,
        tree: TreeBlocks | None = None,
        masks: Masks | None = None,
        sequence: SequencePass | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Return (logprobs [N] with a gradient, entropies [N] with one if wanted), in float32 or wider.

        `masks`: those under which the tokens were sampled. With `tree`, the only row of `token_ids` is a flat tree; the
        model must have been loaded for trees. With `sequence`, tokens and positions are those of this rank's slice,
        targets and masks those of the predictions dealt to it; the model must have been loaded for that group of ranks.
        """
        run_model = partial(self._run, token_ids, tree, sequence)
        deal = None if sequence is None else sequence.dealt
        return self._head.figures(run_model, SampledTokens(rows, columns, targets, temperature, masks, deal))

    def logits(
        self,
        token_ids: Tensor,
        rows: Tensor,
        columns: Tensor,
        tree: TreeBlocks | None,
        sequence: SequencePass | None = None,
    ) -> Tensor:
        """Return the output head's result for the chosen positions, [N, its width]; arguments as of `forward`."""
        return self._head.logits(partial(self._run, token_ids, tree, sequence), rows, columns)

    def _run(self, token_ids: Tensor, tree: TreeBlocks | None, sequence: SequencePass | None) -> Tensor:
        structure: dict[str, Any] = {} if tree is None else {"tree": tree}
        if sequence is not None:
            structure |= {"sequence": sequence, "position_ids": sequence.positions}
        elif tree is not None:
            structure["position_ids"] = _positions(tree, token_ids.device)
        logits: Tensor = self.model(input_ids=token_ids, use_cache=False, **structure).logits
        return logits


def _keep_trained(module: nn.Module, state: dict[str, Any], prefix: str, _metadata: object) -> None:
    """Keep only the adapter in a checkpoint, without the model's tied head, which DeepSpeed overlooks."""
    trained = {prefix + name for name, parameter in module.named_parameters() if parameter.requires_grad}
    for name in state.keys() - trained:
        del state[name]


def _positions(tree: TreeBlocks, device: torch.device) -> Tensor:
    """Return each token's position on its own path, [1, T]."""
    return torch.from_numpy(tree.layout.positions).to(device)[None]


def policy_load(
    model_path: Path,
    dtype: Dtype,
    *,
    in_parts: bool = False,
    is_tree: bool = False,
    has_gradient_checkpoints: bool = False,
    keeps_inputs_on_host: bool = False,
    has_entropy_gradient: bool = False,
    lora: LoraSection | None = None,
    source: str = "",
    freeze_router: bool = False,
    sequence_group: SequenceGroup = ALONE,
    max_model_len: int = 0,
) -> Policy:
    """Load a policy from local files only. Raises ModelLoadError.

    With `in_parts`, which all ranks ask for together, each of them gets only its partition of every parameter, if the
    folder's files can be read so; DeepSpeed must then run the policy. With `is_tree` every row will be a flat tree.
    `keeps_inputs_on_host` is about the inputs that gradient checkpoints save. With `lora` only an adapter takes
    gradients, and `source` names the model in the adapter's configuration. With `freeze_router` routers take none. The
    ranks of a `sequence_group` of several must call it together; their paths have at most `max_model_len` tokens.
    """
    transformers_logging.disable_progress_bar()
    try:
        model_check(model_path)
        with input_faults(model_path):
            model = _model_load(model_path, _DTYPES[dtype], in_parts=in_parts)
    except InputFault as error:
        raise ModelRefused(f"no causal language model can be loaded from {error}") from error
    except OSError as error:
        raise ModelLoadError(f"the files of {model_path} cannot be read: {error}") from error
    if is_tree:
        with gathered_in_calls(model, num_token_ids=PROBE_TOKEN_IDS):
            tree_attention_enable(model)
    if freeze_router:
        _routers_freeze(model)
    if sequence_group.size > 1:
        with gathered_in_calls(model, num_token_ids=PROBE_TOKEN_IDS):
            sequence_attention_enable(
                model, sequence_group, is_tree=is_tree, num_path_tokens_max=max_model_len
            )
    return Policy(
        model,
        adapter=None if lora is None else adapter_attach(model, lora, source=source),
        has_gradient_checkpoints=has_gradient_checkpoints,
        keeps_inputs_on_host=keeps_inputs_on_host,
        has_entropy_gradient=has_entropy_gradient,
    )


def _model_load(model_path: Path, dtype: torch.dtype, *, in_parts: bool) -> PreTrainedModel:
    if in_parts and can_load_in_parts(model_path):
        return partitioned_load(model_path, dtype)
    if in_parts:
        logger.warning("%s is loaded whole on every rank: it has no plain safetensors files", model_path)
    # Values that the files lack are made up, and shapes that differ are only logged, so both are looked at here.
    loading: Any = AutoModelForCausalLM.from_pretrained(
        model_path,
        dtype=dtype,
        local_files_only=True,
        trust_remote_code=False,
        output_loading_info=True,
        ignore_mismatched_sizes=True,
    )
    model: PreTrainedModel = loading[0]
    if problem := _unfilled(model, loading[1]):
        raise ModelRefused(f"{model_path}: {problem}")
    return model


def _unfilled(model: PreTrainedModel, loaded: Mapping[str, Any]) -> str:
    """Return the problem with the values of parameters in a model's files; nothing if all of them have some."""
    if mismatched := sorted(loaded["mismatched_keys"]):
        name, stored, wanted = mismatched[0]
        return f"{name} has the shape {list(stored)} in the files and {list(wanted)} by config.json"
    missing = sorted(set(loaded["missing_keys"]) & {name for name, _ in model.named_parameters()})
    others = f" and {len(missing) - _NUM_NAMED} others" if len(missing) > _NUM_NAMED else ""
    return f"the files have no values for {', '.join(missing[:_NUM_NAMED])}{others}" if missing else ""


def _routers_freeze(model: nn.Module) -> None:
    """Let routers keep choosing as they do. Raises ModelRefused if the model has none."""
    parameters = dict(model.named_parameters())
    routers = router_names(parameters)
    if not routers:
        raise ModelRefused(f"train.freeze_router: {type(model).__name__} has no router; set it to false")
    for name in routers:
        parameters[name].requires_grad_(False)
