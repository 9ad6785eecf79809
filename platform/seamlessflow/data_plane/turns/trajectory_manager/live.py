"""Jobs, sessions, turns and their answers in memory.

The tree of a session is a copy of its rows; the rows are the record. A session takes turns until it has its outcome. It
may be dropped from memory whenever no turn is in flight, and is read back with its next request. Invariant: the stream
and the record name a tool call by the same id.
"""

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from seamlessflow.core.admission.pace import JobPace
from seamlessflow.core.job_spec import JobSpec
from seamlessflow.core.trajectory.answer_progress import AnswerProgress, FinishReason
from seamlessflow.core.trajectory.prefix_tree import Node, NodeKind, PrefixTree
from seamlessflow.data_plane.store.turns.node_rows import RESUMED_FLAG, NodeFacts, NodeRow, SessionKey
from seamlessflow.data_plane.turns.engines.turn_wait import TurnWait
from seamlessflow.data_plane.turns.rendering.answer_text import AnswerText
from seamlessflow.data_plane.turns.rendering.continuation import TailKind
from seamlessflow.data_plane.turns.rendering.model_text import ModelText
from seamlessflow.data_plane.turns.rendering.recent_prompts import RecentPrompts
from seamlessflow.data_plane.turns.rollout_manager import Affinity, Sampling
from seamlessflow.data_plane.turns.trajectory_manager.earlier_answers import Begun, EarlierAnswers
from seamlessflow.data_plane.turns.trajectory_manager.in_flight import InFlight
from seamlessflow.data_plane.turns.trajectory_manager.plan import TurnPlan
from seamlessflow.data_plane.turns.trajectory_manager.session_use import SessionUse
from seamlessflow.data_plane.turns.trajectory_manager.unclaimed import SlotKey
from seamlessflow.runtime.artifacts.store import PinnedFiles

NUM_PROMPTS_KEPT = 256
SESSION_BYTES = 4096  # of a session beside its tree
TURN_BYTES = 300  # of an acknowledged turn beside its nodes


@dataclass(slots=True)
class LiveJob:
    """A job's fixed facts, shared by its sessions. `prompts` keeps the tokens of equal root prompts once."""

    job_id: UUID
    project_id: UUID
    name: str
    spec: JobSpec
    tasks_path: str
    evaluation_tasks_path: str
    text: ModelText
    model_path: str
    is_over: bool = False
    num_dataset_groups: int = 0  # groups of other jobs that it trains on
    prompts: OrderedDict[bytes, bytes] = field(default_factory=OrderedDict)
    recent_prompts: RecentPrompts = field(default_factory=RecentPrompts)  # of first turns
    pace: tuple[int, JobPace | None] | None = None  # with the published batch up to which it was measured
    # The kinds of turns that a helper has rendered from their tails; the template has proven alike for them.
    proven_tails: set[TailKind] = field(default_factory=set)
    # Its files, if this host has copies from a store of objects.
    pinned: list[PinnedFiles] = field(default_factory=list)

    @property
    def resumes_failed(self) -> bool:
        return self.spec.environment.resumes_failed

    @property
    def session_ttl_s(self) -> float | None:
        """Return how long the job's sessions may be silent; None if a runner reports their ends."""
        environment = self.spec.environment
        return environment.session_ttl_s if environment.name == "external" else None

    def affinity(self, evaluation_version: int | None) -> Affinity:
        """Return the affinity of a new session; sessions of an evaluation let one batch's worth of others go first."""
        if evaluation_version is None:
            return Affinity()
        rollout = self.spec.rollout
        return Affinity.of_evaluation(
            evaluation_version, handicap=rollout.groups_per_batch * rollout.group_size
        )

    def shared_prompt(self, token_ids: bytes) -> bytes:
        """Return one shared object for equal prompts, because the sessions of a group begin with the same prompt."""
        digest = hashlib.blake2b(token_ids, digest_size=16).digest()
        kept = self.prompts.setdefault(digest, token_ids)
        self.prompts.move_to_end(digest)
        if len(self.prompts) > NUM_PROMPTS_KEPT:
            self.prompts.popitem(last=False)
        return kept


@dataclass(slots=True)
class Choice:
    """One of a turn's n answers, while it grows: its tokens, its text, and how the client sees it.

    `call_seed` gives its calls their identifiers; without one they are random.
    """

    index: int
    progress: AnswerProgress
    text: AnswerText
    call_seed: bytes = b""
    call_stem: str = field(init=False)

    def __post_init__(self) -> None:
        ids = self.text.family.call_ids
        seed = self.call_seed and self.call_seed + self.index.to_bytes(4)
        self.call_stem = ids.stem_of(seed) if seed else ids.new_stem()

    @property
    def finish_reason(self) -> str:
        if self.progress.finish_reason is FinishReason.LENGTH:
            return "length"
        return "tool_calls" if self.text.parsed.tool_calls else "stop"

    @property
    def num_reasoning_tokens(self) -> int:
        return self.text.num_reasoning_tokens(bytes(self.progress.token_ids))

    def call_id(self, number: int) -> str:
        """Return the identifier of tool call `number`, which the stream and the record share.

        It is the model's own, or else a new one; all new ones of one answer have the same stem.
        """
        own = self.text.parsed.tool_calls[number].call_id
        return own or self.text.family.call_ids.call_id(self.call_stem, number)

    def message(self) -> dict[str, Any]:
        """Return the assistant message as delivered."""
        parsed = self.text.parsed
        message: dict[str, Any] = {"role": "assistant", "content": parsed.content or None}
        if not parsed.tool_calls:
            message["content"] = parsed.content
        else:
            message["tool_calls"] = [
                {
                    "id": self.call_id(number),
                    "type": "function",
                    "function": {"name": call.name, "arguments": call.arguments},
                }
                for number, call in enumerate(parsed.tool_calls)
            ]
        if parsed.reasoning:
            message["reasoning_content"] = parsed.reasoning
        return message


@dataclass(slots=True)
class Turn:
    """One request and its answers; `trajectory_manager/turn` grows and commits it.

    begun: what its answers began with. growth: the task in which they grow, if that may outlive the request.
    """

    session: "LiveSession"
    plan: TurnPlan
    choices: list[Choice]
    turn_id: UUID
    request_digest: bytes
    flags: dict[str, Any]
    started_s: float
    is_recorded: bool = False
    wait: TurnWait = field(default_factory=TurnWait)
    begun: Begun | None = None
    growth: "asyncio.Task[None] | None" = None
    is_counted: bool = False  # in its session's use, as one at work

    @property
    def growing(self) -> "asyncio.Task[None] | None":
        """Return the task in which its answers grow, if they do and it may outlive the request."""
        growth = self.growth or (self.begun.growth if self.begun else None)
        return None if growth is None or growth.done() else growth

    @property
    def has_tokens(self) -> bool:
        return any(choice.progress.token_ids for choice in self.choices)

    def stop(self) -> None:
        """Let its answers grow no longer."""
        if (growing := self.growing) is not None:
            growing.cancel()

    def left(self) -> Begun | None:
        """Return its answers for a request that asks for the same. They go on growing, but wait for no engine."""
        if self.begun is None:
            return None
        self.wait.give_up()
        flags = {RESUMED_FLAG: True} if RESUMED_FLAG in self.flags else {}
        return Begun(self.begun.wanted, self.begun.progresses, flags, self.begun.source, self.growing)

    def count(self) -> None:
        """Count it in its session's use."""
        self.is_counted = True
        self.session.use.begin(len(self.choices))

    def end_count(self) -> None:
        """Count it no longer, once its answers do not grow any more."""
        if (growing := self.growing) is not None:
            growing.add_done_callback(lambda _: self.count_no_longer())
        else:
            self.count_no_longer()

    def count_no_longer(self) -> None:
        if self.is_counted:
            self.is_counted = False
            self.session.use.end(len(self.choices), is_recorded=self.is_recorded)


@dataclass(slots=True)
class Partial:
    """A turn whose client disconnected, kept for a retry."""

    turn: Turn
    expires_at_s: float


@dataclass(slots=True)
class LiveSession:
    key: SessionKey
    job: LiveJob
    group_id: UUID
    key_digest: bytes
    is_open: bool
    evaluation_version: int | None = None  # set for a held-out session: measured, never trained
    slot: int = 0  # of its group
    attempt: int = 1  # of its slot
    is_resumed: bool = False  # it failed, and the next attempt of its slot goes on after its answers
    earlier: EarlierAnswers | None = None  # those of the attempt that it resumes, once they were read
    tree: PrefixTree = field(default_factory=PrefixTree)
    affinity: Affinity = field(init=False)
    use: SessionUse = field(default_factory=SessionUse)
    turns: dict[bytes, UUID] = field(default_factory=dict)  # acknowledged turns by request digest
    in_flight: dict[bytes, InFlight] = field(default_factory=dict)  # by request digest, the newest of each
    call_seeds: set[bytes] = field(default_factory=set)  # that answers have, one for each prompt
    partials: dict[bytes, list[Partial]] = field(default_factory=dict)  # by request digest, the oldest first
    undelivered: dict[bytes, UUID] = field(
        default_factory=dict
    )  # recorded turns whose clients left too early

    def __post_init__(self) -> None:
        self.affinity = self.job.affinity(self.evaluation_version)

    @property
    def sampling(self) -> Sampling:
        spec, is_training = self.job.spec, self.evaluation_version is None
        temperature = spec.rollout.temperature if is_training else spec.evaluation_temperature
        return Sampling(self.job.job_id, temperature, self.job.text.end_ids)

    @property
    def num_bytes(self) -> int:
        """Return about how much memory it takes while none of its turns is in flight."""
        num_earlier = self.earlier.num_bytes if self.earlier else 0
        return SESSION_BYTES + self.tree.num_bytes + TURN_BYTES * len(self.turns) + num_earlier

    @property
    def may_resume(self) -> bool:
        """Whether its first answers may be those of an earlier attempt."""
        return self.attempt > 1 and self.job.resumes_failed

    @property
    def may_be_resumed(self) -> bool:
        """Whether the next attempt of its slot may get what it has sampled."""
        return self.is_resumed or (self.is_open and self.job.resumes_failed)

    @property
    def slot_key(self) -> SlotKey:
        return self.group_id, self.slot

    def restore(self, rows: Sequence[NodeRow]) -> None:
        """Rebuild the tree from its rows, after a restart or an eviction."""
        for row in rows:
            self.tree.add(row.node)
            if row.facts.request_digest is not None and not row.node.is_partial:
                self.turns[row.facts.request_digest] = row.facts.turn_id
        self.use.restore(rows)

    def call_seed(self, plan: TurnPlan) -> bytes:
        """Return the seed of the identifiers of a new turn's calls; empty if they shall be random.

        An attempt that resumes an earlier one gives the calls of its first answers the same identifiers. Then its next
        prompts are the same even where a template writes identifiers, and get the recorded answers. Further answers to
        the same prompt need other identifiers.
        """
        if not self.job.resumes_failed:
            return b""
        seed = hashlib.blake2b(plan.prompt_ids, key=self.job.job_id.bytes, digest_size=16).digest()
        is_known = self.tree.prompt_child(plan.parent, plan.digests, plan.context) is not None
        if is_known or seed in self.call_seeds:
            return b""
        self.call_seeds.add(seed)
        return seed

    def is_known(self, digest: bytes, *, is_retry: bool) -> bool:
        """Return whether a request may be one that was here before, and so no new turn."""
        flight = self.in_flight.get(digest)
        if flight is not None and (is_retry or flight.has_client_left):
            return True
        return digest in self.partials or digest in self.undelivered or (is_retry and digest in self.turns)

    def keep_partial(self, partial: Partial) -> None:
        self.partials.setdefault(partial.turn.request_digest, []).append(partial)

    def all_partials(self) -> list[Partial]:
        return [partial for kept in self.partials.values() for partial in kept]

    def partial_count_no_longer(self, digest: bytes) -> None:
        """Let the next retry of a request count instead of the turn that it takes."""
        for partial in self.partials.get(digest, ())[:1]:
            partial.turn.count_no_longer()

    def take_partial(self, digest: bytes) -> Partial | None:
        """Return the oldest abandoned turn of a request, which is then no longer kept."""
        kept = self.partials.get(digest)
        if not kept:
            return None
        partial = kept.pop(0)
        if not kept:
            del self.partials[digest]
        return partial

    def add_node(
        self, *, parent: int | None, kind: NodeKind, token_ids: bytes, facts: NodeFacts, **fields: Any
    ) -> NodeRow:
        """Append a node to the tree and return its row, which the caller must commit."""
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
