"""Continuous batching: which rows compute what in the next step, and what their sampled tokens mean.

Sequences enter through `add`; each round is `admit`, `plan`, the runner's step, `commit`. Long prompts are computed in
chunks within a token budget while the others go on decoding. A prompt that begins like a row with its salt copies that
row's KV instead, and waits a step if a sibling is just computing it. Invariant: a running sequence has exactly one
row, and the KV of its first `num_computed` tokens is in the cache.
"""

from collections import deque
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from seamlessflow.core.guidance.masks import PackedMask
from seamlessflow_workers.rollout.engine.runner import (
    ModelRunner,
    PrefillChunk,
    Reshaping,
    Sampled,
    SamplingBatch,
    StepBatch,
)
from seamlessflow_workers.rollout.engine.slot_table import MIN_SHARED_TOKENS, PrefixMatch, SlotTable
from seamlessflow_workers.rollout.serving.sequence import SequenceFinishReason, ServedSequence


@dataclass(slots=True)
class SchedulerCounters:
    prompt_tokens: int = 0
    generation_tokens: int = 0
    prefix_queries: int = 0  # tokens looked up
    prefix_hits: int = 0  # tokens found
    preemptions: int = 0
    finished: dict[SequenceFinishReason, int] = field(
        default_factory=lambda: dict.fromkeys(SequenceFinishReason, 0)
    )


class _RowParams:
    """Sampling parameters and progress of the rows as arrays, so that a step collects them without a loop."""

    def __init__(self, num_rows: int) -> None:
        self.temperature = np.ones(num_rows, dtype=np.float32)
        self.top_p = np.ones(num_rows, dtype=np.float32)
        self.top_k = np.zeros(num_rows, dtype=np.int64)
        self.seed = np.zeros(num_rows, dtype=np.uint64)
        self.num_generated = np.zeros(num_rows, dtype=np.uint64)
        self.last_token = np.zeros(num_rows, dtype=np.int64)
        self.position = np.zeros(num_rows, dtype=np.int64)  # of the next token to compute

    def fill(self, sequence: ServedSequence) -> None:
        row, params = sequence.row, sequence.params
        self.temperature[row] = params.temperature
        self.top_p[row] = params.top_p
        self.top_k[row] = max(params.top_k, 0)
        self.seed[row] = np.uint64(sequence.seed & 0xFFFFFFFFFFFFFFFF)
        self.num_generated[row] = sequence.num_generated
        self.last_token[row] = sequence.tokens[sequence.num_tokens - 1]
        self.position[row] = sequence.num_computed


class Scheduler:
    def __init__(self, runner: ModelRunner, *, max_batched_tokens: int) -> None:
        self._runner = runner
        self._max_batched_tokens = max_batched_tokens
        self.table = SlotTable(num_rows=runner.num_rows, max_model_len=runner.max_model_len)
        self._params = _RowParams(runner.num_rows)
        self.waiting: deque[ServedSequence] = deque()
        self.prefilling: list[ServedSequence] = []
        self.decoding: list[ServedSequence] = []
        self._decode_rows: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        self._is_stale = False  # `_decode_rows` does not match `decoding`
        self._num_guided = 0  # running sequences with a guide
        self._num_reshaped = 0  # with penalties or biases
        self.counters = SchedulerCounters()

    @property
    def num_running(self) -> int:
        return len(self.prefilling) + len(self.decoding)

    @property
    def unfinished(self) -> list[ServedSequence]:
        return [*self.prefilling, *self.decoding, *self.waiting]

    def add(self, sequence: ServedSequence) -> None:
        self.counters.prompt_tokens += sequence.num_prompt_tokens
        self.waiting.append(sequence)

    def admit(self) -> None:
        """Give rows to waiting sequences, oldest first; one whose prefix a sibling is computing waits for it."""
        num_free = self._runner.num_rows - self.num_running
        deferred: list[ServedSequence] = []
        while self.waiting and num_free and len(deferred) < self._runner.num_rows:
            sequence = self.waiting.popleft()
            known = sequence.tokens[: sequence.num_tokens]
            match = self._match(sequence, known)
            if match.num_coming - match.num_valid >= MIN_SHARED_TOKENS and self.prefilling:
                deferred.append(sequence)
                continue
            self._place(sequence, known, match)
            num_free -= 1
        self.waiting.extendleft(reversed(deferred))

    def _match(self, sequence: ServedSequence, known: NDArray[np.int32]) -> PrefixMatch:
        if sequence.params.skip_reading_prefix_cache:
            return PrefixMatch(row=-1, num_valid=0, num_coming=0)
        # The last token is always computed: the next one is sampled from its logits.
        return self.table.find_prefix(known[:-1], salt=sequence.cache_salt)

    def _place(self, sequence: ServedSequence, known: NDArray[np.int32], match: PrefixMatch) -> None:
        shared = match.num_valid if match.num_valid >= MIN_SHARED_TOKENS else 0
        row = self.table.choose_row(source=match.row if shared else -1, num_shared=shared)
        if shared and row != match.row:
            self._runner.copy_prefix(source=match.row, target=row, num_tokens=shared)
        self.table.occupy(row, tokens=known, num_valid=shared, salt=sequence.cache_salt)
        sequence.row, sequence.num_computed = row, shared
        if sequence.num_cached_tokens is None:
            sequence.num_cached_tokens = shared
        self.counters.prefix_queries += len(known)
        self.counters.prefix_hits += shared
        self._params.fill(sequence)
        self._num_guided += sequence.matcher is not None
        self._num_reshaped += sequence.params.is_reshaped
        if sequence.num_tokens - shared == 1:
            self.decoding.append(sequence)
            self._is_stale = True
        else:
            self.prefilling.append(sequence)

    def plan(self, *, weight_version: str) -> StepBatch | None:
        """Return the next step, or None if nothing runs."""
        if self._is_stale:
            self._refresh_decode_rows()
        chunks = self._plan_chunks()
        rows = self._decode_rows
        if not chunks and not len(rows):
            return None
        positions = self._params.position[rows]
        tokens = self._params.last_token[rows]
        self.table.tokens[rows, positions] = tokens
        self.table.num_known[rows] = positions + 1
        sampled = [chunk.row for chunk in chunks if chunk.is_sampled]
        sampled_rows = np.concatenate([np.array(sampled, dtype=np.int64), rows]) if sampled else rows
        return StepBatch(
            chunks=chunks,
            decode_rows=rows,
            decode_tokens=tokens,
            decode_positions=positions,
            sampling=self._plan_sampling(sampled_rows, self._sampled_sequences(chunks)),
            weight_version=weight_version,
        )

    def _refresh_decode_rows(self) -> None:
        self._compact()
        self.decoding.sort(key=lambda sequence: sequence.row)
        self._decode_rows = np.array([sequence.row for sequence in self.decoding], dtype=np.int64)
        self._is_stale = False

    def _compact(self) -> None:
        """Move the highest running rows to low free ones, because a decode step computes all rows up to the highest."""
        by_row = {sequence.row: sequence for sequence in (*self.prefilling, *self.decoding)}
        limit = len(by_row) + len(by_row) // 4 + 1
        while by_row and (highest := max(by_row)) >= limit:
            lowest = self.table.is_live.index(False)
            num_tokens = self.table.swap(lowest, highest)
            self._runner.swap_rows(lowest, highest, num_tokens=num_tokens)
            sequence = by_row.pop(highest)
            sequence.row = lowest
            by_row[lowest] = sequence
            self._params.fill(sequence)

    def _plan_chunks(self) -> tuple[PrefillChunk, ...]:
        """Return chunks of the oldest prompts within the budget, which counts the padded rectangle that is computed."""
        chunks: list[PrefillChunk] = []
        longest = 0
        for sequence in self.prefilling:
            start = sequence.num_computed
            length = min(sequence.num_tokens - start, self._max_batched_tokens)
            longest = max(longest, length)
            if chunks and (len(chunks) + 1) * longest > self._max_batched_tokens:
                break
            end = start + length
            chunks.append(
                PrefillChunk(
                    row=sequence.row,
                    start=start,
                    tokens=sequence.tokens[start:end],
                    is_sampled=end == sequence.num_tokens,
                )
            )
        return tuple(chunks)

    def _sampled_sequences(self, chunks: tuple[PrefillChunk, ...]) -> list[ServedSequence]:
        prefilled = [s for s, chunk in zip(self.prefilling, chunks, strict=False) if chunk.is_sampled]
        return [*prefilled, *self.decoding]

    def _plan_sampling(self, rows: NDArray[np.int64], sequences: list[ServedSequence]) -> SamplingBatch:
        params = self._params
        forbidden = tuple(
            (entry, tuple(sequence.stop_ids))
            for entry, sequence in enumerate(sequences)
            if sequence.params.min_tokens and sequence.num_generated < sequence.params.min_tokens
        )
        return SamplingBatch(
            temperature=params.temperature[rows],
            top_p=params.top_p[rows],
            top_k=params.top_k[rows],
            uniform=_uniform(params.seed[rows], params.num_generated[rows]),
            forbidden=forbidden,
            num_top=max((sequence.params.logprobs or 0 for sequence in sequences), default=0),
            allowed=_masks(sequences) if self._num_guided else (),
            reshaped=_reshapings(sequences) if self._num_reshaped else (),
        )

    def commit(self, batch: StepBatch, sampled: Sampled) -> list[ServedSequence]:
        """Append the sampled tokens; return the sequences that got one, including those that it finished."""
        sequences = self._sampled_sequences(batch.chunks)
        self._commit_chunks(batch.chunks)
        rows = np.array([sequence.row for sequence in sequences], dtype=np.int64)
        self._params.position[rows] = [sequence.num_tokens for sequence in sequences]
        self._params.last_token[rows] = sampled.tokens
        self._params.num_generated[rows] += np.uint64(1)
        self.table.num_valid[batch.decode_rows] = batch.decode_positions + 1
        tokens, logprobs = sampled.tokens.tolist(), sampled.logprobs.tolist()
        if sampled.top_ids is not None and sampled.top_logprobs is not None:
            # Before the tokens: readers take what belongs to the tokens that they see.
            _record_top(sequences, sampled.top_ids, sampled.top_logprobs)
        for sequence, token, logprob in zip(sequences, tokens, logprobs, strict=True):
            sequence.num_computed = sequence.num_tokens
            sequence.append(token=token, logprob=logprob, version=batch.weight_version)
        if self._num_guided:
            for sequence in sequences:
                sequence.advance_guide()
        self.counters.generation_tokens += len(sequences)
        for sequence in sequences:
            if sequence.finish_reason is not None:
                self.release(sequence)
        return sequences

    def _commit_chunks(self, chunks: tuple[PrefillChunk, ...]) -> None:
        for sequence, chunk in zip(tuple(self.prefilling), chunks, strict=False):
            sequence.num_computed = chunk.start + len(chunk.tokens)
            self.table.num_valid[sequence.row] = sequence.num_computed
            if chunk.is_sampled:
                self.prefilling.remove(sequence)
                self.decoding.append(sequence)
                self._is_stale = True

    def abort(
        self, sequence: ServedSequence, *, reason: SequenceFinishReason = SequenceFinishReason.ABORT
    ) -> None:
        """End the sequence with the tokens that it has."""
        if sequence.finish_reason is not None:
            return
        sequence.finish_reason = reason
        self.release(sequence)

    def release(self, sequence: ServedSequence) -> None:
        if sequence.finish_reason is not None:
            self.counters.finished[sequence.finish_reason] += 1
        if sequence.row < 0:
            self.waiting.remove(sequence)
            return
        self._leave_row(sequence)

    def _leave_row(self, sequence: ServedSequence) -> None:
        self.table.vacate(sequence.row)
        self._num_guided -= sequence.matcher is not None
        self._num_reshaped -= sequence.params.is_reshaped
        (self.decoding if sequence in self.decoding else self.prefilling).remove(sequence)
        sequence.row, sequence.num_computed = -1, 0
        self._is_stale = True

    def preempt_all(self) -> None:
        """Take the rows of all running sequences, which wait ahead of the others to be recomputed from their tokens."""
        running = [*self.decoding, *self.prefilling]
        for sequence in running:
            self._leave_row(sequence)
        self.waiting.extendleft(reversed(running))
        self.counters.preemptions += len(running)
        self.table.forget_free()

    def forget_prefixes(self) -> None:
        self.table.forget_free()


def _masks(sequences: list[ServedSequence]) -> tuple[tuple[int, PackedMask], ...]:
    return tuple(
        (entry, sequence.allowed) for entry, sequence in enumerate(sequences) if sequence.allowed is not None
    )


def _reshapings(sequences: list[ServedSequence]) -> tuple[tuple[int, Reshaping], ...]:
    return tuple(
        (entry, _reshaping(sequence))
        for entry, sequence in enumerate(sequences)
        if sequence.params.is_reshaped
    )


def _reshaping(sequence: ServedSequence) -> Reshaping:
    params, num_prompt = sequence.params, sequence.num_prompt_tokens
    return Reshaping(
        prompt=sequence.tokens[:num_prompt],
        generated=sequence.tokens[num_prompt : sequence.num_tokens],
        frequency=params.frequency_penalty,
        presence=params.presence_penalty,
        repetition=params.repetition_penalty,
        bias=params.bias,
    )


def _record_top(
    sequences: list[ServedSequence], ids: NDArray[np.int64], logprobs: NDArray[np.float32]
) -> None:
    for entry, sequence in enumerate(sequences):
        count = sequence.params.logprobs or 0
        if count:
            sequence.top_logprobs.append((ids[entry, :count].tolist(), logprobs[entry, :count].tolist()))


def _uniform(seed: NDArray[np.uint64], index: NDArray[np.uint64]) -> NDArray[np.float64]:
    """Return uniform numbers in [0, 1) as a function of (seed, token index), by SplitMix64.

    So a draw depends neither on the rest of the batch nor on preemptions. 48 bits, so that the value times a float64
    total stays below the total.
    """
    state = seed + (index + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    state = state ^ (state >> np.uint64(31))
    scaled: NDArray[np.float64] = (state >> np.uint64(16)).astype(np.float64) * 2.0**-48
    return scaled
