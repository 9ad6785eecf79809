"""TRL's GRPOTrainer on the calculator with TRL's own tool loop.

The interpreter of the TRL environment runs it. It takes a model folder, a tasks file and one of
`SETTINGS`, and prints one JSON line per update, `{"at_s", "reward"}`, where `at_s` counts from the
start of the process. Prompt and tool answers are identical to those of the warm start.
"""

import argparse
import json
import operator
import os
import re
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

OPERATIONS = {"*": operator.mul, "+": operator.add, "-": operator.sub}
EXPRESSION = re.compile(r"(\d{1,18})([*+-])(\d{1,18})")
TOOL = {
    "type": "function",
    "function": {
        "name": "calc",
        "description": "Evaluates a*b, a+b or a-b.",
        "parameters": {
            "type": "object",
            "properties": {"expression": {"type": "string"}},
            "required": ["expression"],
        },
    },
}
# TRL describes a tool in words of its own; the model was warmed up with ours.
TOOLS_LOOP = "{%- for tool in tools -%}{{- tool | tojson -}}{%- endfor -%}"
RESPONSE = {
    "defaults": {"role": "assistant"},
    "start_anchor_pattern": r"<\|im_start\|>assistant\n",
    "fields": {
        "tool_calls": {
            "open_pattern": "<tool_call>",
            "close_pattern": "</tool_call>",
            "repeats": True,
            "content": "json",
            "transform": {"type": "function", "function": "{content}"},
        },
        "content": {"close_pattern": r"<\|im_end\|>|$", "content": "text"},
    },
}
SETTINGS: dict[str, dict[str, Any]] = {
    "generate, one thread": {"threads": 1},
    "generate, two threads": {"threads": 2},
    "continuous batching, two threads": {"threads": 2, "use_transformers_continuous_batching": True},
}


def calc(expression: str) -> str:
    """Evaluates a*b, a+b or a-b.

    Args:
        expression: two whole numbers joined by a sign
    """
    match = EXPRESSION.fullmatch(expression)
    return str(OPERATIONS[match[2]](int(match[1]), int(match[3]))) if match else "error"


def reward_of(completion: Sequence[dict[str, Any]], answer: str) -> float:
    last = completion[-1]
    is_answer = last["role"] == "assistant" and not last.get("tool_calls")
    return float(is_answer and (last.get("content") or "").strip() == answer)


def train(arguments: argparse.Namespace) -> None:
    import psutil
    import torch
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from trl import GRPOConfig, GRPOTrainer

    began_at = psutil.Process().create_time()
    setting = dict(SETTINGS[arguments.setting])
    torch.set_num_threads(setting.pop("threads"))
    tokenizer = AutoTokenizer.from_pretrained(arguments.model)
    assert TOOLS_LOOP in tokenizer.chat_template
    tokenizer.chat_template = tokenizer.chat_template.replace(
        TOOLS_LOOP, "{{- '" + json.dumps(TOOL) + "' -}}"
    )
    tokenizer.response_template = RESPONSE

    def reward(
        completions: Sequence[Sequence[dict[str, Any]]], answer: Sequence[str], **_: object
    ) -> list[float]:
        rewards = [reward_of(said, right) for said, right in zip(completions, answer, strict=True)]
        line = {"at_s": time.time() - began_at, "reward": sum(rewards) / len(rewards)}
        sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.flush()
        return rewards

    tasks = [json.loads(line) for line in arguments.tasks.read_text().splitlines()]
    prompts = [
        {"prompt": [{"role": "user", "content": task["question"]}], "answer": task["answer"]}
        for task in tasks
    ]
    with tempfile.TemporaryDirectory() as output:
        config = GRPOConfig(
            output_dir=output,
            per_device_train_batch_size=arguments.num_groups * arguments.group_size,
            num_generations=arguments.group_size,
            max_steps=arguments.updates,
            learning_rate=arguments.learning_rate,
            lr_scheduler_type="constant",
            adam_beta2=0.95,
            max_grad_norm=1.0,
            temperature=1.0,
            beta=0.0,
            max_completion_length=96,
            max_tool_calling_iterations=3,
            bf16=False,
            gradient_checkpointing=False,
            use_cpu=True,
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
            logging_steps=10**6,
            seed=arguments.seed,
            **setting,
        )
        trainer = GRPOTrainer(
            model=AutoModelForCausalLM.from_pretrained(arguments.model, dtype=torch.float32),
            reward_funcs=reward,
            args=config,
            train_dataset=Dataset.from_list(prompts),
            processing_class=tokenizer,
            tools=[calc],
        )
        trainer.train()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--tasks", type=Path, required=True)
    parser.add_argument("--setting", choices=list(SETTINGS), required=True)
    parser.add_argument("--updates", type=int, default=50)
    parser.add_argument("--num-groups", type=int, default=8)
    parser.add_argument("--group-size", type=int, default=8)
    parser.add_argument("--learning-rate", type=float, default=2e-4)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", str(SETTINGS[arguments.setting]["threads"]))
    train(arguments)


if __name__ == "__main__":
    main()
