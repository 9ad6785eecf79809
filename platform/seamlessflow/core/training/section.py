"""The training section of the job spec: the optimizer, the trained parameters, the number of processes, and how much is
kept."""

import math
from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import (
    BeforeValidator,
    Field,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)

from seamlessflow.core.spec_section import SpecSection
from seamlessflow.core.training.divisors import divisors_named
from seamlessflow.core.training.memory import OffloadSection
from seamlessflow.core.types.dtypes import Dtype
from seamlessflow.core.types.transports import WeightTransport

LayerName = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]{1,128}$")]
# Models whose experts can be spread, by `model_type` in their config.json.
EXPERT_PARALLEL_FAMILIES = ("qwen3_moe", "deepseek_v3")
LORA_LEARNING_RATE = 1e-5  # the default for an adapter
Beta = Annotated[float, Field(ge=0, lt=1)]
MAX_RANKS = 64
AUTO: Literal["auto"] = "auto"


def _auto_or_number(given: Any) -> Any:
    """Refuse any other value in one sentence; a union would make two."""
    is_number = isinstance(given, int) and not isinstance(given, bool)
    if given == AUTO or (is_number and 1 <= given <= MAX_RANKS):
        return given
    raise ValueError(f"{given!r} is not accepted; accepted: auto, or a number from 1 to {MAX_RANKS}")


NumRanks = Annotated[
    Annotated[int, Field(ge=1, le=MAX_RANKS)] | Literal["auto"], BeforeValidator(_auto_or_number)
]


class TrainObjective(StrEnum):
    """once: each sampled token counts once. by_leaves: it counts once for each branch that contains it, as if the
    branches were trained separately."""

    ONCE = "once"
    BY_LEAVES = "by_leaves"


class TrainedTrees(StrEnum):
    """all: every conversation of a session. main: only the one with the most sampled tokens."""

    ALL = "all"
    MAIN = "main"


class LoraSection(SpecSection):
    """LoRA (arXiv 2106.09685): the model is frozen, and low-rank updates of its linear layers are
    trained."""

    rank: Annotated[int, Field(ge=1, le=4096)] = 16
    """The rank r: A has r rows and B has r columns. A job without a `lora` section trains every weight."""
    alpha: Annotated[float, Field(gt=0, le=65_536)] = 32.0
    """Scale of the adapter: each layer's weight changes by (alpha / rank)·B·A."""
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Dropout on the inputs of A while a step computes gradients. Above 0, the trained logprobs
    differ from the sampled ones."""
    target_modules: Annotated[list[LayerName], Field(max_length=64)] = []
    """Linear layers to adapt, each named by the end of its name, such as `q_proj`; empty: all except the output head.
    """


class TrainParallelSection(SpecSection):
    """How training processes divide one copy of the model; all other processes are data parallel."""

    expert: Annotated[int, Field(ge=1, le=1024)] = 1
    """Number of processes over which the experts of a mixture-of-experts model are spread. Each has an equal number of
    the experts, and tokens travel to the process of their expert. It must divide the number of all training processes
    and the number of experts. Qwen3-MoE and DeepSeek-V3 models can be spread."""
    sequence: Annotated[int, Field(ge=1, le=64)] = 1
    """Number of processes of a machine that divide each sequence (Ulysses, arXiv 2309.14509): each has a slice of its
    tokens and, in attention, some of the heads. This divides the memory that activations take, for long contexts. It
    must divide `num_ranks` and the model's number of attention heads."""


MAX_TRAIN_MACHINES = 64
TrainMachineCount = Annotated[int, Field(ge=1, le=MAX_TRAIN_MACHINES)]


class TrainMachines(SpecSection):
    """Machines that train together. Training waits for `min` of them."""

    min: TrainMachineCount = 1
    """Training waits until as many are available."""
    max: TrainMachineCount = 1
    """Each time that training begins, it also takes machines that no other job needs at that moment, up to this number
    in all. It keeps them until it ends or gives its machines to others."""

    @model_validator(mode="after")
    def _are_in_order(self) -> "TrainMachines":
        if self.min > self.max:
            raise ValueError(f"min: {self.min} is more than max, {self.max}")
        return self

    @model_serializer(mode="wrap")
    def _as_given(self, handler: SerializerFunctionWrapHandler) -> int | dict[str, int]:
        """Write equal bounds as one number."""
        bounds: dict[str, int] = handler(self)
        return self.min if self.min == self.max else bounds

    @property
    def are_elastic(self) -> bool:
        return self.min < self.max


def _machines_of(given: object) -> object:
    """Read one number as both bounds."""
    if isinstance(given, Mapping | TrainMachines):
        return given
    if isinstance(given, bool) or not isinstance(given, int) or not 1 <= given <= MAX_TRAIN_MACHINES:
        raise ValueError(
            f"is {given!r}; accepted: a number from 1 to {MAX_TRAIN_MACHINES}, or bounds such as {{min: 1, max: 4}}"
        )
    return {"min": given, "max": given}


class TrainSection(SpecSection):
    num_updates: Annotated[int, Field(ge=1, le=10_000_000)] = 100
    """The job completes when it has published this many updates."""
    learning_rate: Annotated[
        float, Field(ge=0, le=10, json_schema_extra={"x-default-with": {"lora": LORA_LEARNING_RATE}})
    ] = 1e-6
    """Learning rate of AdamW. The default for an adapter (lora) is ten times higher, because the best rate for an
    adapter is about ten times the best rate for all weights, in supervised and reinforcement learning alike (LoRA
    Without Regret, Thinking Machines Lab, 2025)."""
    weight_decay: Annotated[float, Field(ge=0, le=10)] = 0.0
    """Weight decay of AdamW, applied to every trained weight."""
    adam_betas: tuple[Beta, Beta] = (0.9, 0.95)
    """Decay rates of AdamW's first and second moments."""
    max_grad_norm: Annotated[float, Field(gt=0, le=1e9)] = 1.0
    """Maximum gradient norm over all weights; a larger gradient is scaled down to it."""
    warmup_updates: Annotated[int, Field(ge=0, le=10_000_000)] = 0
    """Number of updates over which the learning rate rises linearly to its value, with each optimizer step; it then
    stays constant."""
    continue_from: Annotated[str, Field(max_length=64)] | None = None
    """A job of the same project, which has ended or is paused, to continue from its newest checkpoint (`job_01h…`),
    with the state of its optimizer. The model, its number format and the adapter must be the same; how many processes
    train may differ. Updates are counted anew. If left out, training begins with the initial model."""
    lora: LoraSection | None = None
    """Train an adapter and publish only the adapter. If left out, every weight is trained."""
    zero_stage: Annotated[int, Field(ge=0, le=3)] = 1
    """ZeRO stage: what the training processes shard (1: optimizer states; 2: also gradients; 3: also
    weights)."""
    num_ranks: NumRanks = AUTO
    """Number of training processes per machine. They divide each batch, and ZeRO shards its states across them. `auto`:
    one for each device (GPU) of the machine, at most as many as a batch has sessions."""
    machines: Annotated[
        TrainMachines,
        BeforeValidator(_machines_of, json_schema_input_type=TrainMachineCount | TrainMachines),
        Field(alias="num_machines"),
    ] = TrainMachines()
    """Number of machines that train together, with `num_ranks` processes each: a number, or bounds such as
    `{"min": 2, "max": 8}`. They must see the artifacts and the model under the same paths."""
    parallel: TrainParallelSection = TrainParallelSection()
    freeze_router: bool = False
    """Keep the routers of a mixture-of-experts model as they are: training then changes what experts compute, but not
    the rule by which tokens are sent to them. There is no auxiliary loss that balances experts."""
    minibatches: Annotated[int, Field(ge=1, le=65_536)] = 1
    """Number of mini-batches into which each batch is cut, with one optimizer step for each. They consist of whole
    groups. A batch still makes one version."""
    epochs: Annotated[int, Field(ge=1, le=100)] = 1
    """Number of passes over each batch. An update has `minibatches` × `epochs` optimizer steps."""
    objective: TrainObjective = TrainObjective.ONCE
    """How often an answer counts that is in several branches of a session: `once` in all, or once in each branch
    (`by_leaves`)."""
    trees: TrainedTrees = TrainedTrees.ALL
    """Which conversations of a session are trained with its reward: `all`, or only the `main` one. That is the tree
    with the most sampled tokens, and of equal ones the first. `main` leaves out what an agent asks beside its task,
    such as a title, and other agents in the same session."""
    tree: bool = True
    """Train the branches of a group as trees, so that common prefixes are computed once; false: train
    each branch separately. The gradients are the same. Models with state-space layers cannot be
    trained on trees."""
    micro_batch_tokens: Annotated[int, Field(ge=16, le=2**31 - 1)] = 16_384
    """Token budget of one forward and backward pass, also if several processes divide its sequences."""
    gradient_checkpointing: bool = False
    """Keep only the inputs of each layer and recompute the layer in the backward pass. This takes less memory but about
    a third more time."""
    offload: OffloadSection = OffloadSection()
    """What a training process keeps in the host's memory to spare its GPU's."""
    gradient_dtype: Dtype | None = None
    """Number format in which the gradients of a step add up over its micro-batches and processes. If left out,
    `float32`; at ZeRO stage 0, and with spread experts, that of the model. `bfloat16` takes half the memory, but what
    is small is lost in a sum of many micro-batches."""
    weight_transport: WeightTransport = WeightTransport.FILE
    """How engines get new weights. The weights are always written to files as well, and an engine reads the files if
    its transport fails. `file`: only from the files; `ipc`: from the trainer's memory, on the same host; `nccl`: by a
    broadcast between GPUs; `gloo`: by a broadcast between CPUs; `auto`: by the first of `ipc` and `nccl` that the
    engine supports."""
    checkpoint_every_updates: Annotated[int, Field(ge=1, le=10_000_000)] = 10
    """Number of updates between checkpoints. A restarted trainer resumes from the newest checkpoint, so this limits how
    much training a crash can lose."""
    keep_versions: Annotated[int, Field(ge=2, le=10_000_000)] = 8
    """Number of published versions to keep, in addition to pinned ones."""

    @property
    def num_machines(self) -> int:
        """Return how many machines train together at most."""
        return self.machines.max

    @property
    def _sure_machines(self) -> int:
        """Return over how many machines experts are spread. If the number may change, each has all of them."""
        return 1 if self.machines.are_elastic else self.num_machines

    @model_validator(mode="after")
    def _experts_can_be_spread(self) -> "TrainSection":
        for reason in self._against_spread_experts() if self.parallel.expert > 1 else ():
            raise ValueError(f"parallel.expert: {reason}")
        return self

    def _against_spread_experts(self) -> Iterator[str]:
        """Yield a sentence for each option that does not go with spread experts."""
        num_processes = self._sure_machines * self.least_ranks
        if num_processes % self.parallel.expert != 0:
            yield (
                f"{self.parallel.expert} does not divide the number of training processes, {num_processes} "
                "(num_ranks x num_machines, or num_ranks if num_machines has bounds); accepted: its divisors"
            )
        if self.zero_stage == 0:
            yield (
                "with zero_stage 0 each process would clip gradients by the norm of its own experts; accepted: "
                "zero_stage 1, 2 or 3"
            )
        if self.lora is not None:
            yield "an adapter leaves experts as they are, so there is nothing to spread; leave lora or this out"

    @property
    def num_steps_per_update(self) -> int:
        """Return the number of optimizer steps for which the learning rate counts one batch."""
        return self.minibatches * self.epochs

    @model_validator(mode="before")
    @classmethod
    def _adapters_learn_faster(cls, given: Any) -> Any:
        if not isinstance(given, Mapping) or given.get("lora") is None:
            return given
        return {"learning_rate": LORA_LEARNING_RATE, **given}

    @model_validator(mode="after")
    def _sequences_are_shared_by_whole_groups(self) -> "TrainSection":
        num_sharing, num_ranks = self.parallel.sequence, self.least_ranks
        if num_ranks % num_sharing:
            raise ValueError(
                f"parallel.sequence: {num_sharing} does not divide the {num_ranks} processes of a machine "
                f"(train.num_ranks); accepted: {divisors_named(num_ranks)}"
            )
        return self

    @property
    def least_ranks(self) -> int:
        """Return how many processes each machine runs at least; if they follow its devices, they are a multiple."""
        if self.num_ranks != AUTO:
            return self.num_ranks
        spread = self.parallel.expert // math.gcd(self.parallel.expert, self._sure_machines)
        return math.lcm(self.parallel.sequence, spread)

    @property
    def known_num_ranks(self) -> int:
        """Return `num_ranks` of a spec for a machine whose devices are known (`JobSpec.on_devices`)."""
        assert self.num_ranks != AUTO
        return self.num_ranks
