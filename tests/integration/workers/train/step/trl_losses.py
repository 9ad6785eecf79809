"""Run as a script by TRL's environment: TRL's own loss functions on tensors given to it.

Standard input: JSON `{"cases": {name: settings}, "batch": {...}}`; `batch` holds lists [B][T] of logprobs, old
logprobs, reference logprobs and a mask, and advantages [B]. Standard output, JSON in float64: `{name: {"loss",
"gradient" [B][T]}}`.
The trainers are not constructed (they would load models and data): their loss methods run on an object that has what
these methods read, and the forward pass is replaced by the given logprobs.
"""

import json
import sys
from collections import defaultdict
from types import SimpleNamespace
from typing import Any

import torch
from trl.trainer.grpo_trainer import GRPOTrainer
from trl.trainer.rloo_trainer import RLOOTrainer


class OneProcess:
    num_processes = 1
    sync_gradients = True

    @staticmethod
    def gather(value: torch.Tensor) -> torch.Tensor:
        return value.reshape(-1)

    @staticmethod
    def reduce(value: torch.Tensor, reduction: str = "sum") -> torch.Tensor:
        return value


def trainer_of(kind: type, settings: dict[str, Any], logprobs: torch.Tensor) -> Any:
    trainer: Any = object.__new__(kind)
    defaults = {
        "loss_type": "grpo",
        "importance_sampling_level": "token",
        "beta": 0.0,
        "epsilon_low": 0.2,
        "epsilon_high": 0.2,
        "max_completion_length": logprobs.shape[1],
    }
    trainer.__dict__.update(
        {
            **defaults,
            **settings,
            "top_entropy_quantile": 1.0,
            "off_policy_mask_threshold": None,
            "use_vllm": False,
            "aux_loss_enabled": False,
            "_entropy_bonus_enabled": False,
            "current_gradient_accumulation_steps": 1,
            "args": SimpleNamespace(
                delta=settings.get("delta"), use_bias_correction_kl=False, steps_per_generation=1
            ),
            "accelerator": OneProcess(),
            "model": SimpleNamespace(training=True),
            "_metrics": {"train": defaultdict(list)},
            "_get_per_token_logps_and_entropies": lambda *_, **__: (
                logprobs,
                torch.zeros_like(logprobs),
                None,
            ),
        }
    )
    return trainer


def compute(settings: dict[str, Any], batch: dict[str, Any]) -> dict[str, Any]:
    def tensor(name: str) -> torch.Tensor:
        return torch.tensor(batch[name], dtype=torch.float64)

    logprobs, mask = tensor("logprobs").requires_grad_(), tensor("mask")
    inputs: dict[str, Any] = {
        "prompt_ids": torch.zeros(mask.shape[0], 1, dtype=torch.long),
        "prompt_mask": torch.ones(mask.shape[0], 1, dtype=torch.long),
        "completion_ids": torch.zeros(mask.shape, dtype=torch.long),
        "completion_mask": mask,
        "advantages": tensor("advantages"),
        "num_items_in_batch": mask.sum(),
        "old_per_token_logps": tensor("old_logprobs"),
        "ref_per_token_logps": tensor("reference_logprobs"),
        "old_logps": (tensor("old_logprobs") * mask).sum(1),
    }
    settings = dict(settings)
    kind = {"grpo": GRPOTrainer, "rloo": RLOOTrainer}[settings.pop("trainer")]
    loss = kind._compute_loss(trainer_of(kind, settings, logprobs), None, inputs)
    loss.backward()
    assert logprobs.grad is not None
    return {"loss": float(loss.detach()), "gradient": logprobs.grad.tolist()}


def main() -> None:
    request = json.load(sys.stdin)
    json.dump(
        {name: compute(settings, request["batch"]) for name, settings in request["cases"].items()}, sys.stdout
    )


if __name__ == "__main__":
    main()
