"""Jobs, sessions and turns in memory: what an answer needs at hand.

A session's tree here is a copy of its rows; rows are the record. A session is open until its outcome, then it takes no
turns. It may be forgotten at any moment without a turn in flight and is read back when it speaks again.
"""

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from seamlessflow.core.job_spec import JobSpec, job_spec_parse
from seamlessflow.core.trajectory.prefix_tree import Node, NodeKind, PrefixTree
from seamlessflow.data_plane.store.jobs import JobRow
from seamlessflow.data_plane.store.turns.node_rows import NodeFacts, NodeRow, SessionKey
from seamlessflow.data_plane.turns.rendering.model_text import ModelText, model_text_load
from seamlessflow.data_plane.turns.rollout_manager.manager import Affinity, Sampling
from seamlessflow.data_plane.turns.trajectory_manager.choice import Choice
from seamlessflow.data_plane.turns.trajectory_manager.plan import TurnPlan

NUM_PROMPTS_KEPT = 256


@dataclass(slots=True)
class LiveJob:
    """One job's fixed facts, shared by its sessions. `prompts` keeps root tokens once for all of them."""

    job_id: UUID
    project_id: UUID
    name: str
    spec: JobSpec
    tasks_path: str
    evaluation_tasks_path: str
    text: ModelText
    model_path: str
    is_over: bool = False
    num_dataset_groups: int = 0  # of other jobs, that it trains on
    prompts: OrderedDict[bytes, bytes] = field(default_factory=OrderedDict)

    @property
    def session_ttl_s(self) -> float | None:
        """Return how long the job's sessions may be silent; None: a runner reports their ends."""
        environment = self.spec.environment
        return environment.session_ttl_s if environment.name == "external" else None

    def affinity(self, evaluation_version: int | None) -> Affinity:
        """Return the affinity of a new session; an evaluation's sessions let a batch's worth of others go first."""
        if evaluation_version is None:
            return Affinity()
        rollout = self.spec.rollout
        return Affinity.of_evaluation(
            evaluation_version, handicap=rollout.groups_per_batch * rollout.group_size
        )

    def shared_prompt(self, token_ids: bytes) -> bytes:
        """Return one object for equal prompts: the sessions of a group begin with the same one."""
        digest = hashlib.blake2b(token_ids, digest_size=16).digest()
        kept = self.prompts.setdefault(digest, token_ids)
        self.prompts.move_to_end(digest)
        if len(self.prompts) > NUM_PROMPTS_KEPT:
            self.prompts.popitem(last=False)
        return kept


@dataclass(slots=True)
class Turn:
    """One request and its answers. What becomes of it is in `trajectory_manager/turn`."""

    session: "LiveSession"
    plan: TurnPlan
    choices: list[Choice]
    turn_id: UUID
    request_digest: bytes
    flags: dict[str, Any]
    started_s: float


@dataclass(slots=True)
class Partial:
    """A turn whose client vanished, kept for its retry."""

    turn: Turn
    expires_at_s: float


@dataclass(slots=True)
class LiveSession:
    key: SessionKey
    job: LiveJob
    group_id: UUID
    key_digest: bytes
    is_open: bool
    evaluation_version: int | None = None  # held out: measured, never trained
    tree: PrefixTree = field(default_factory=PrefixTree)
    affinity: Affinity = field(init=False)
    turns: dict[bytes, UUID] = field(default_factory=dict)  # acknowledged turns by request digest
    in_flight: "dict[bytes, asyncio.Task[None]]" = field(default_factory=dict)
    partials: dict[bytes, Partial] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.affinity = self.job.affinity(self.evaluation_version)

    @property
    def sampling(self) -> Sampling:
        spec, is_training = self.job.spec, self.evaluation_version is None
        temperature = spec.rollout.temperature if is_training else spec.evaluation_temperature
        return Sampling(self.job.job_id, temperature, self.job.text.end_ids)

    def restore(self, rows: Sequence[NodeRow]) -> None:
        """Rebuild the tree from its rows, after a restart or an eviction."""
        for row in rows:
            self.tree.add(row.node)
            if row.facts.request_digest is not None and not row.node.is_partial:
                self.turns[row.facts.request_digest] = row.facts.turn_id

    def add_node(
        self, *, parent: int | None, kind: NodeKind, token_ids: bytes, facts: NodeFacts, **fields: Any
    ) -> NodeRow:
        """Append a node to the tree; its row is the caller's to commit."""
        above = self.tree.nodes[parent].num_path_tokens if parent is not None else 0
        node = Node(
            index=len(self.tree.nodes),
            parent=parent,
            kind=kind,
            token_ids=token_ids,
            num_path_tokens=above + len(token_ids) // 4,
            **fields,
        )
        self.tree.add(node)
        return NodeRow(self.key, node, facts)


def live_job(row: JobRow) -> LiveJob:
    """Build a live job. Raises ModelUnusable and InvalidJobSpec."""
    return LiveJob(
        job_id=row.job_id,
        project_id=row.project_id,
        name=row.name,
        spec=job_spec_parse(row.spec),
        tasks_path=row.tasks_path,
        evaluation_tasks_path=row.evaluation_tasks_path,
        text=model_text_load(row.model_path),
        model_path=row.model_path,
        num_dataset_groups=row.num_dataset_groups,
    )
