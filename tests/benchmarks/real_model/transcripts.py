"""What the platform recorded of the job's sessions, compared with the model's own tokenizer and template.

Takes the exported trajectories and the converted model folder. Returns answers as text; raises WrongPrompt if a
recorded prompt differs from what transformers makes of the same question.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from transformers import AutoTokenizer


class WrongPrompt(AssertionError):
    """The gateway and transformers do not agree on the tokens of a prompt."""


@dataclass(frozen=True, slots=True)
class Transcript:
    evaluation_version: int | None  # None: it was trained on
    question: str
    prompt_ids: Sequence[int]
    answer_ids: Sequence[int]
    reward: float


def transcripts_read(folder: Path) -> list[Transcript]:
    """Read an export: sessions of one question and one answer."""
    nodes: dict[str, list[Mapping[str, Any]]] = {}
    for node in pq.read_table(folder / "nodes.parquet").to_pylist():
        if not node["is_partial"]:
            nodes.setdefault(node["session"], []).append(node)
    return list(_transcripts(pq.read_table(folder / "sessions.parquet").to_pylist(), nodes))


def _transcripts(
    sessions: Sequence[Mapping[str, Any]], nodes: Mapping[str, Sequence[Mapping[str, Any]]]
) -> Iterator[Transcript]:
    for session in sessions:
        if session["reward"] is None:
            continue  # an attempt that was given up
        tokens: dict[str, list[int]] = {"prompt": [], "sampled": []}
        for node in nodes[session["session"]]:
            tokens["sampled" if node["kind"] == "sampled" else "prompt"] += node["token_ids"] or []
        yield Transcript(
            session["evaluation_version"],
            json.loads(session["task"])["question"],
            tokens["prompt"],
            tokens["sampled"],
            session["reward"],
        )


class OwnText:
    """The model's tokenizer and chat template, as transformers reads them from its folder."""

    def __init__(self, model: Path) -> None:
        self._tokenizer = AutoTokenizer.from_pretrained(model, local_files_only=True)

    def prompt_ids(self, question: str) -> list[int]:
        message = {"role": "user", "content": question}
        text = self._tokenizer.apply_chat_template([message], add_generation_prompt=True, tokenize=False)
        ids: list[int] = self._tokenizer(text, add_special_tokens=False)["input_ids"]
        return ids

    def show(self, ids: Sequence[int]) -> str:
        return str(self._tokenizer.decode(list(ids)))

    def check(self, transcripts: Sequence[Transcript]) -> None:
        """Raises WrongPrompt."""
        for transcript in transcripts:
            if (meant := self.prompt_ids(transcript.question)) != list(transcript.prompt_ids):
                raise WrongPrompt(f"{self.show(transcript.prompt_ids)!r} instead of {self.show(meant)!r}")
