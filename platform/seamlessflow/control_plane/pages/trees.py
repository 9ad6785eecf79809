"""A session's tree as the page draws it: one entry per node in depth-first order, indented where it branches.

Sampled nodes carry their version spans as shares of their width, each version with one of a few repeating colours,
and their tokens where these were read.
"""

import json
import math
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

NUM_VERSION_COLOURS = 8


@dataclass(frozen=True, slots=True)
class Span:
    version: int
    num_tokens: int
    left: float  # percent of the node's tokens
    share: float
    colour: int


@dataclass(frozen=True, slots=True)
class Token:
    id: int
    probability: float
    version: int
    colour: int


@dataclass(frozen=True, slots=True)
class Said:
    role: str
    text: str


@dataclass(frozen=True, slots=True)
class TreeNode:
    index: int
    kind: str
    depth: int  # number of forks above
    num_tokens: int
    messages: list[Said]
    spans: list[Span]
    tokens: list[Token]  # of sampled nodes only
    marks: list[str]


def tree_of(nodes: list[dict[str, Any]]) -> list[TreeNode]:
    """Depth first; a child that is its parent's only one stays at the parent's depth."""
    children: dict[int | None, list[dict[str, Any]]] = defaultdict(list)
    for node in nodes:
        children[node["parent_index"]].append(node)
    order, pending = [], [(node, 0) for node in reversed(children[None])]
    while pending:
        node, depth = pending.pop()
        order.append(_tree_node(node, depth))
        below = children[node["node_index"]]
        deeper = depth + (len(below) > 1)
        pending += [(child, deeper) for child in reversed(below)]
    return order


def _tree_node(node: dict[str, Any], depth: int) -> TreeNode:
    return TreeNode(
        index=node["node_index"],
        kind=node["kind"],
        depth=depth,
        num_tokens=node["num_tokens"],
        messages=[_said(message) for message in node["messages"] or []],
        spans=_spans(node),
        tokens=_tokens(node),
        marks=list(_marks(node)),
    )


def _said(message: dict[str, Any]) -> Said:
    content = message.get("content") or ""
    text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
    calls = [call.get("function", {}) for call in message.get("tool_calls") or []]
    parts = [text, *(f"→ {call.get('name')}({call.get('arguments')})" for call in calls)]
    return Said(role=str(message.get("role", "")), text="\n".join(part for part in parts if part))


def _spans(node: dict[str, Any]) -> list[Span]:
    total = max(node["num_tokens"], 1)
    return [
        Span(
            version=span.version,
            num_tokens=span.end - span.start,
            left=round(100 * span.start / total, 2),
            share=round(100 * (span.end - span.start) / total, 2),
            colour=span.version % NUM_VERSION_COLOURS,
        )
        for span in node["versions"]
    ]


def _tokens(node: dict[str, Any]) -> list[Token]:
    ids, logprobs = node.get("token_ids", []), node.get("logprobs", [])
    return [
        Token(ids[i], math.exp(logprobs[i]), span.version, span.version % NUM_VERSION_COLOURS)
        for span in node["versions"]
        for i in range(span.start, min(span.end, len(ids), len(logprobs)))
    ]


def _marks(node: dict[str, Any]) -> list[str]:
    marks = []
    if node["is_partial"]:
        marks.append("partial, not trained")
    if node["num_handovers"]:
        marks.append(f"handed over {node['num_handovers']}×, continued {node['num_continuations']}×")
    if node["verdict"] not in (None, "clean"):
        marks.append(f"{node['verdict']}: {node['cause']}")
    if node["max_gap_s"] is not None and node["max_gap_s"] >= 1:
        marks.append(f"largest gap {node['max_gap_s']:.1f} s")
    if node["finish_reason"] not in (None, "stop", "tool_calls"):
        marks.append(node["finish_reason"])
    return marks
