"""The embedded engine's scheduler over the fake runner, whose cache holds tokens: a wrong row or position shows."""

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seamlessflow_workers.rollout.engine.scheduler import Scheduler
from seamlessflow_workers.rollout.engine.slot_table import SlotTable
from seamlessflow_workers.rollout.serving.request import GenerateRequest, SamplingParams
from seamlessflow_workers.rollout.serving.sequence import SequenceFinishReason, ServedSequence
from tests.fakes.fake_engine import FakeRunner, Faults, next_logprob, next_token

MAX_MODEL_LEN = 128
NUM_ROWS = 5
VOCAB_SIZE = 300


def make_scheduler(*, max_batched_tokens: int = 16) -> tuple[Scheduler, FakeRunner]:
    runner = FakeRunner(
        num_rows=NUM_ROWS, max_model_len=MAX_MODEL_LEN, vocab_size=VOCAB_SIZE, faults=Faults()
    )
    return Scheduler(runner, max_batched_tokens=max_batched_tokens), runner


def make_sequence(prompt: list[int], *, max_tokens: int, salt: str = "s", seed: int = 0) -> ServedSequence:
    params = SamplingParams(max_tokens=max_tokens, ignore_eos=True, logprobs=0)
    body = GenerateRequest(token_ids=prompt, sampling_params=params, cache_salt=salt)
    return ServedSequence(
        request_id=f"r{seed}", body=body, eos_token_ids=frozenset(), max_model_len=MAX_MODEL_LEN, seed=seed
    )


def step(scheduler: Scheduler, runner: FakeRunner, *, version: str = "0") -> bool:
    scheduler.admit()
    batch = scheduler.plan(weight_version=version)
    if batch is None:
        return False
    scheduler.commit(batch, runner.step(batch))
    return True


def run_to_end(scheduler: Scheduler, runner: FakeRunner) -> None:
    while step(scheduler, runner):
        pass


def assert_is_what_the_function_says(sequence: ServedSequence) -> None:
    tokens = sequence.tokens[: sequence.num_tokens]
    versions = {
        index: version
        for version, start, end in sequence.spans(start=0, end=sequence.num_generated)
        for index in range(start, end)
    }
    assert len(versions) == sequence.num_generated
    for index in range(sequence.num_generated):
        prefix = tokens[: sequence.num_prompt_tokens + index]
        assert tokens[len(prefix)] == next_token(prefix, version=versions[index], vocab_size=VOCAB_SIZE)
        assert sequence.logprobs[index] == np.float32(next_logprob(prefix, version=versions[index]))


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), max_batched_tokens=st.sampled_from([4, 16, 200]))
def test_every_token_is_right_through_admissions_aborts_preemptions_and_versions(
    seed: int, max_batched_tokens: int
) -> None:
    rng = random.Random(seed)
    scheduler, runner = make_scheduler(max_batched_tokens=max_batched_tokens)
    histories = [[rng.randrange(VOCAB_SIZE) for _ in range(rng.randrange(1, 40))] for _ in range(3)]
    sequences: list[ServedSequence] = []
    version = 0
    for _ in range(120):
        chance = rng.random()
        if chance < 0.25:
            history = rng.choice(histories)
            prompt = history[: rng.randrange(1, len(history) + 1)] + [
                rng.randrange(VOCAB_SIZE)
            ] * rng.randrange(3)
            sequence = make_sequence(
                prompt, max_tokens=rng.randrange(1, 30), salt=rng.choice("ab"), seed=len(sequences)
            )
            sequences.append(sequence)
            scheduler.add(sequence)
        elif chance < 0.28 and scheduler.unfinished:
            scheduler.abort(rng.choice(scheduler.unfinished))
        elif chance < 0.31:
            version += 1
            scheduler.preempt_all()
        else:
            step(scheduler, runner, version=str(version))
        histories += [s.tokens[: s.num_tokens].tolist() for s in sequences[-1:] if s.num_tokens < 60]
    while step(scheduler, runner, version=str(version)):
        pass

    for sequence in sequences:
        assert sequence.finish_reason is not None
        assert_is_what_the_function_says(sequence)
    assert not any(scheduler.table.is_live)
    assert scheduler.num_running == 0


def test_sequences_of_one_prompt_wait_for_the_first_to_compute_it() -> None:
    scheduler, runner = make_scheduler()
    prompt = list(range(20, 80))
    sequences = [make_sequence(prompt, max_tokens=3, seed=index) for index in range(5)]
    for sequence in sequences:
        scheduler.add(sequence)

    run_to_end(scheduler, runner)

    cached = [sequence.num_cached_tokens or 0 for sequence in sequences]
    assert cached[0] == 0
    assert min(cached[1:]) >= 48  # all but the chunk that was computed when they were let in


def test_next_turn_takes_over_the_row_of_the_last_one() -> None:
    scheduler, runner = make_scheduler()
    first = make_sequence(list(range(20, 60)), max_tokens=10)
    scheduler.add(first)
    run_to_end(scheduler, runner)

    turn = [*first.tokens[: first.num_tokens].tolist(), 7, 8]
    second = make_sequence(turn, max_tokens=2)
    scheduler.add(second)
    run_to_end(scheduler, runner)

    # The last sampled token was never fed back, so its KV is the one that is missing.
    assert second.num_cached_tokens == 49
    assert_is_what_the_function_says(second)


@pytest.mark.parametrize("is_forgotten", [False, True])
def test_prefix_of_another_salt_or_of_old_weights_is_never_used(is_forgotten: bool) -> None:
    scheduler, runner = make_scheduler()
    prompt = list(range(20, 60))
    scheduler.add(make_sequence(prompt, max_tokens=2, salt="a"))
    run_to_end(scheduler, runner)
    if is_forgotten:
        scheduler.forget_prefixes()

    second = make_sequence(prompt, max_tokens=2, salt="a" if is_forgotten else "b")
    scheduler.add(second)
    run_to_end(scheduler, runner)

    assert second.num_cached_tokens == 0


def test_live_row_stops_serving_others_once_its_weights_are_old() -> None:
    scheduler, runner = make_scheduler()
    prompt = list(range(20, 60))
    first = make_sequence(prompt, max_tokens=50)
    scheduler.add(first)
    for _ in range(6):
        step(scheduler, runner)
    assert first.num_generated > 0
    scheduler.forget_prefixes()

    second = make_sequence(prompt, max_tokens=2)
    scheduler.add(second)
    run_to_end(scheduler, runner)

    assert second.num_cached_tokens == 0


def test_waiting_sequence_that_is_aborted_ends_without_tokens() -> None:
    scheduler, _ = make_scheduler()
    sequence = make_sequence([20, 21], max_tokens=5)
    scheduler.add(sequence)

    scheduler.abort(sequence)

    assert sequence.finish_reason is SequenceFinishReason.ABORT
    assert sequence.num_generated == 0
    assert not scheduler.waiting
    assert scheduler.counters.finished[SequenceFinishReason.ABORT] == 1


def test_decoding_rows_are_kept_low() -> None:
    scheduler, runner = make_scheduler(max_batched_tokens=200)
    sequences = [make_sequence([20 + i] * 12, max_tokens=40 if i == 4 else 2, seed=i) for i in range(5)]
    for sequence in sequences:
        scheduler.add(sequence)
    for _ in range(6):
        step(scheduler, runner)

    assert [s.row for s in sequences if s.finish_reason is None] == [0]
    run_to_end(scheduler, runner)
    assert_is_what_the_function_says(sequences[4])


def test_swapped_rows_exchange_everything() -> None:
    table = SlotTable(num_rows=3, max_model_len=16)
    table.occupy(2, tokens=np.arange(10, dtype=np.int32), num_valid=10, salt="x")

    moved = table.swap(0, 2)

    assert moved == 10
    assert table.salts == ["x", None, None]
    assert table.is_live == [True, False, False]
    assert table.find_prefix(np.arange(12, dtype=np.int32), salt="x").num_valid == 10


def test_spans_are_clipped_to_what_was_asked() -> None:
    sequence = make_sequence([20], max_tokens=9)
    for index in range(9):
        sequence.append(token=30, logprob=-1.0, version="a" if index < 4 else "b")

    assert sequence.spans(start=0, end=9) == [("a", 0, 4), ("b", 4, 9)]
    assert sequence.spans(start=2, end=6) == [("a", 2, 4), ("b", 4, 6)]
    assert sequence.spans(start=4, end=4) == []
