"""The tables of docs/algorithms.md: the presets, and every option with its default and its source.

Takes the declarations and returns Markdown, which `export_schemas` puts between the markers of the document.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import BaseModel

from seamlessflow.core.algorithms.options import AlgorithmName
from seamlessflow.core.algorithms.presets import PRESETS
from seamlessflow.core.algorithms.section import AlgorithmSection, StageSection
from seamlessflow.core.training.section import TrainSection

OURS = "ours"
# Where each option comes from; a test checks that none is missing.
SOURCES: Mapping[str, str] = {
    "name": OURS,
    "advantage": "GRPO 2402.03300, RLOO 2402.14740, REINFORCE++ 2501.03262, HiPO 2509.23967",
    "advantage_options": OURS,
    "advantage_norm": "GRPO 2402.03300 (mean_std), Dr. GRPO 2503.20783 (mean)",
    "ratio": "PPO 1707.06347 (token), RLOO 2402.14740 (sequence), GSPO 2507.18071 (sequence_mean)",
    "objective": "PPO 1707.06347 (clip), MiniMax-M1 2506.13585 (cispo), REINFORCE (policy_gradient)",
    "clip_low": "PPO 1707.06347",
    "clip_high": "PPO 1707.06347; apart from clip_low: DAPO 2503.14476",
    "dual_clip": "1912.09729",
    "aggregation": "DAPO 2503.14476 (token_mean), GRPO 2402.03300 (sequence_mean), Dr. GRPO 2503.20783 (constant)",
    "aggregation_constant": "Dr. GRPO 2503.20783",
    "kl_coef": "GRPO 2402.03300",
    "kl_estimator": "Schulman, Approximating KL divergence, 2020",
    "kl_placement": "GRPO 2402.03300 (loss), RLOO 2402.14740 (reward)",
    "entropy_coef": "PPO 1707.06347",
    "max_staleness": "AReaL 2505.24298",
    "sft_min_reward": OURS,
    "off_policy.proximal": "2110.00641, AReaL 2505.24298",
    "off_policy.importance": "IMPALA 1802.01561 (truncate); ms-swift's rollout correction (mask)",
    "off_policy.importance_level": "IMPALA 1802.01561 (token), GSPO 2507.18071 (sequence_mean)",
    "off_policy.importance_min": OURS,
    "off_policy.importance_max": "2, as in ms-swift's rollout correction",
    "off_policy.staleness_scope": OURS,
    "off_policy.stale_groups": OURS,
    "sampling.dynamic": "DAPO 2503.14476",
    "sampling.dynamic_limit": OURS,
    "sampling.history": "SRPO 2504.14286",
    "sampling.correct_reward": OURS,
    "overlong.rule": "DAPO 2503.14476 (shape, filter), SRPO 2504.14286 (zero_advantage)",
    "overlong.max_tokens": "DAPO 2503.14476",
    "overlong.buffer_fraction": "DAPO 2503.14476: 4096 of 20480",
    "overlong.penalty": "DAPO 2503.14476",
    "critic.learning_rate": "InstructGPT 2203.02155",
    "critic.gamma": "GAE 1506.02438; 1: InstructGPT 2203.02155",
    "critic.gae_lambda": "GAE 1506.02438; 0.95: InstructGPT 2203.02155",
    "critic.value_clip": "InstructGPT 2203.02155",
    "critic.warmup_updates": "VC-PPO 2503.01491",
    "judge.end": OURS,
    "judge.on": OURS,
    "judge.gamma": "HiPO 2509.23967, from secondary texts",
    "judge.bias": "HiPO 2509.23967, from secondary texts",
    "judge.norm": "HiPO 2509.23967",
    "stages": "SRPO 2504.14286; its rule is not public",
    "stages[].name": OURS,
    "stages[].domains": "SRPO 2504.14286",
    "stages[].until_update": OURS,
    "stages[].until_metric": OURS,
    "stages[].at_least": OURS,
    "stages[].window": OURS,
    "train.objective": "Tree Training 2511.00413",
    "train.tree": "Tree Training 2511.00413",
    "train.adam_betas": "SRPO 2504.14286",
    "train.learning_rate": "1e-6: DAPO 2503.14476, SRPO 2504.14286",
    "train.weight_decay": "AdamW 1711.05101",
    "train.max_grad_norm": OURS,
    "train.warmup_updates": OURS,
    "train.minibatches": "PPO 1707.06347, DAPO 2503.14476, GSPO 2507.18071, AReaL 2505.24298",
    "train.epochs": "PPO 1707.06347",
}
_OF_TRAIN = tuple(name.removeprefix("train.") for name in SOURCES if name.startswith("train."))


def presets_table() -> str:
    """Return one row per preset: its differences from `grpo`, and its paper."""
    common = dict(_flat(PRESETS[AlgorithmName.GRPO].options))
    rows = []
    for name, preset in PRESETS.items():
        own = dict(_flat(preset.options))
        differs = [
            f"`{key}: {_shown(value)}`"
            for key, value in own.items()
            if key not in common or common[key] != value or name is AlgorithmName.GRPO
        ]
        rows.append((f"`{name.value}`", ", ".join(differs), preset.source))
    return _table(("preset", "options (of all but `grpo`: where they differ from it)", "source"), rows)


def options_table() -> str:
    """Return one row per option, with the default that applies if neither spec nor preset sets it."""
    rows = [*_options(AlgorithmSection, "", AlgorithmSection()), *_options(StageSection, "stages[].", None)]
    train = [row for row in _options(TrainSection, "train.", TrainSection()) if row[0] in SOURCES]
    cells = [
        (f"`{path}`", default, accepted, meaning, SOURCES.get(path, ""))
        for path, default, accepted, meaning in [*rows, *train]
    ]
    return _table(("option", "default", "accepted", "meaning", "source"), cells)


def option_paths() -> set[str]:
    """Return the path of every option of the algorithm; nested ones have dots."""
    rows = [*_options(AlgorithmSection, "", AlgorithmSection()), *_options(StageSection, "stages[].", None)]
    return {path for path, *_ in rows} | {f"train.{name}" for name in _OF_TRAIN}


def _options(
    section: type[BaseModel], prefix: str, values: BaseModel | None
) -> Iterator[tuple[str, str, str, str]]:
    schema = section.model_json_schema()
    definitions = schema.get("$defs", {})
    for attribute, field in section.model_fields.items():
        name = field.alias or attribute  # as people write it
        described = schema["properties"][name]
        value = None if values is None else getattr(values, attribute)
        if isinstance(value, BaseModel):
            yield from _options(type(value), f"{prefix}{name}.", value)
            continue
        shapes = [_resolved(shape, definitions) for shape in (described, *described.get("anyOf", []))]
        default = (
            "required"
            if field.is_required()
            else _shown(field.get_default(call_default_factory=True) if values is None else value)
        )
        meanings = (field.description, *(shape.get("description") for shape in shapes))
        meaning = next((text for text in meanings if text), "")
        yield f"{prefix}{name}", f"`{default}`", _accepted(shapes), " ".join(meaning.split())


def _resolved(shape: Mapping[str, Any], definitions: Mapping[str, Any]) -> Mapping[str, Any]:
    reference = shape.get("$ref")
    return definitions[str(reference).rsplit("/", 1)[-1]] if reference else shape


def _accepted(shapes: list[Mapping[str, Any]]) -> str:
    for shape in shapes:
        if "enum" in shape:
            return ", ".join(f"`{value}`" for value in shape["enum"])
        low, high = shape.get("minimum"), shape.get("maximum")
        if low is None and "exclusiveMinimum" in shape:
            low = f"above {_shown(shape['exclusiveMinimum'])}"
        if low is not None and high is not None:
            return f"{low if isinstance(low, str) else _shown(low)} to {_shown(high)}"
        if low is not None:
            return f"{low if isinstance(low, str) else 'from ' + _shown(low)}"
    kinds = [str(shape["type"]) for shape in shapes if "type" in shape]
    return {"boolean": "`true`, `false`", "string": "text", "array": "a list", "object": "a mapping"}.get(
        kinds[0] if kinds else "", ""
    )


def _flat(options: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in options.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _shown(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, tuple):
        return f"[{', '.join(_shown(item) for item in value)}]"
    return str(value) if not isinstance(value, list) else "[]"


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    return "".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |\n" for line in lines)


TABLES = {"presets": presets_table, "options": options_table}


def filled(document: str) -> str:
    """Return the document with its tables rewritten between `<!-- name -->` and `<!-- end of name -->`.

    Raises ValueError if a marker is missing.
    """
    for name, table in TABLES.items():
        begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
        before, found, rest = document.partition(begin)
        _, is_ended, after = rest.partition(end)
        if not found or not is_ended:
            raise ValueError(f"the document has no table between {begin.strip()} and {end}")
        document = f"{before}{begin}\n{table()}\n{end}{after}"
    return document
