"""The model families whose way of writing tool calls and reasoning is known, and how to recognise a model's family.

`family_find` takes a chat template and asks which tokens the tokenizer has. The template is asked first: it writes past
calls in the format that the model was trained on, and a fine-tuned model keeps its marks.
"""

from collections.abc import Callable, Sequence
from enum import StrEnum


class ModelFamily(StrEnum):
    AUTO = "auto"
    HERMES = "hermes"
    QWEN3_CODER = "qwen3_coder"
    GLM = "glm"
    LLAMA3 = "llama3"
    DEEPSEEK_V3 = "deepseek_v3"
    DEEPSEEK_V31 = "deepseek_v31"
    KIMI_K2 = "kimi_k2"
    MISTRAL = "mistral"
    GPT_OSS = "gpt_oss"


# What a family writes, in words for people.
FAMILY_TITLES: dict[ModelFamily, str] = {
    ModelFamily.HERMES: "Hermes (Qwen2.5, Qwen3 and others: JSON between <tool_call> marks)",
    ModelFamily.QWEN3_CODER: "Qwen3-Coder and Qwen3.5 (XML between <tool_call> marks)",
    ModelFamily.GLM: "GLM from 4.5 on",
    ModelFamily.LLAMA3: "Llama 3",
    ModelFamily.DEEPSEEK_V3: "DeepSeek V3 and R1",
    ModelFamily.DEEPSEEK_V31: "DeepSeek V3.1",
    ModelFamily.KIMI_K2: "Kimi K2",
    ModelFamily.MISTRAL: "Mistral",
    ModelFamily.GPT_OSS: "gpt-oss (harmony channels)",
}

# Text that only the templates of one family write; the first match decides.
_IN_TEMPLATE: Sequence[tuple[ModelFamily, tuple[str, ...]]] = (
    (ModelFamily.QWEN3_CODER, ("<function=", "<parameter=")),
    (ModelFamily.GLM, ("<arg_key>", "<arg_value>")),
    (ModelFamily.KIMI_K2, ("<|tool_call_argument_begin|>",)),
    (ModelFamily.DEEPSEEK_V3, ("<｜tool▁sep｜>", "```json")),
    (ModelFamily.DEEPSEEK_V31, ("<｜tool▁sep｜>",)),
    (ModelFamily.MISTRAL, ("[TOOL_CALLS]",)),
    (ModelFamily.GPT_OSS, ("<|channel|>", "<|message|>")),
    (ModelFamily.HERMES, ("<tool_call>",)),
    (ModelFamily.LLAMA3, ("<|python_tag|>",)),
    (ModelFamily.LLAMA3, ("<|start_header_id|>", '"parameters": ')),
)
# Tokens that only the tokenizers of one family have, for templates that do not write calls.
_IN_VOCABULARY: Sequence[tuple[ModelFamily, str]] = (
    (ModelFamily.KIMI_K2, "<|tool_call_argument_begin|>"),
    (ModelFamily.DEEPSEEK_V3, "<｜tool▁sep｜>"),
    (ModelFamily.MISTRAL, "[TOOL_CALLS]"),
    (ModelFamily.GPT_OSS, "<|constrain|>"),
    (ModelFamily.GLM, "<arg_key>"),
    (ModelFamily.HERMES, "<tool_call>"),
    (ModelFamily.LLAMA3, "<|python_tag|>"),
)


def family_find(template: str, has_token: Callable[[str], bool]) -> ModelFamily:
    """Return the family of a model by its chat template, then by its tokens. An unknown model counts as Hermes."""
    for family, texts in _IN_TEMPLATE:
        if all(text in template for text in texts):
            return family
    for family, token in _IN_VOCABULARY:
        if has_token(token):
            return family
    return ModelFamily.HERMES
