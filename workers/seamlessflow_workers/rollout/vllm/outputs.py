"""Translates for vLLM: our sampling parameters into its own, and its outputs into chunks of an answer.

vLLM keeps the weight version of every token, but reports the versions only with the last token. A stream must name
them earlier; otherwise there would be no record of the weights that sampled the tokens of an engine that died.
`versions_so_far` reads them from vLLM's internal state.
"""

from typing import Any

from vllm import SamplingParams
from vllm.outputs import CompletionOutput
from vllm.sampling_params import RequestOutputKind

from seamlessflow_workers.rollout.serving.sequence import SequenceFinishReason, ServedSequence
from seamlessflow_workers.rollout.vllm.guide_masks import guide_arguments


def sampling_params(sequence: ServedSequence) -> SamplingParams:
    """Return vLLM's parameters. End-of-sequence tokens become stop tokens: vLLM runs without a tokenizer here."""
    params = sequence.params
    return SamplingParams(
        temperature=params.temperature,
        top_p=params.top_p,
        top_k=max(params.top_k, 0),
        seed=params.seed,
        max_tokens=sequence.max_total_tokens - sequence.num_prompt_tokens,
        min_tokens=params.min_tokens,
        stop_token_ids=sorted(sequence.stop_ids),
        ignore_eos=True,
        logprobs=params.logprobs,
        presence_penalty=params.presence_penalty,
        frequency_penalty=params.frequency_penalty,
        repetition_penalty=params.repetition_penalty,
        logit_bias=params.bias or None,
        detokenize=False,
        stream_interval=params.stream_interval,
        extra_args=_extra_arguments(sequence),
        skip_reading_prefix_cache=params.skip_reading_prefix_cache,
        output_kind=RequestOutputKind.DELTA if sequence.is_streaming else RequestOutputKind.FINAL_ONLY,
    )


def _extra_arguments(sequence: ServedSequence) -> dict[str, Any] | None:
    if sequence.matcher is None:
        return None
    return guide_arguments(sequence.matcher.guide, num_answered=sequence.num_answered)


def sequence_take(
    sequence: ServedSequence, completion: CompletionOutput, versions: list[tuple[str, int]] | None
) -> None:
    """Append new tokens, and finish the sequence if vLLM has. `versions`: of all tokens so far, before the end."""
    if completion.finish_reason is not None:
        versions = [(span.version, span.start) for span in completion.weight_versions or ()]
    ids = list(completion.token_ids)
    sequence.take(ids, _logprobs(sequence, ids, completion.logprobs), version_starts=versions or [])
    if completion.finish_reason is None:
        return
    if completion.finish_reason == SequenceFinishReason.STOP and ids:
        requested = sequence.params.stop_token_ids or ()
        sequence.stop_reason = ids[-1] if ids[-1] in requested else None
    sequence.finish_reason = SequenceFinishReason(completion.finish_reason)


def versions_so_far(output_processor: Any, request_id: str) -> list[tuple[str, int]] | None:
    """Return (version, first generated token) of a running request; None if vLLM has none or the id is ambiguous."""
    internal_ids = output_processor.external_req_ids.get(request_id, ())
    if len(internal_ids) != 1:
        return None
    state = output_processor.request_states.get(internal_ids[0])
    starts: list[tuple[str, int]] | None = getattr(state, "weight_version_starts", None)
    return None if starts is None else list(starts)


def _logprobs(sequence: ServedSequence, ids: list[int], entries: Any) -> list[float]:
    if sequence.params.logprobs is None or not ids:
        return []
    if sequence.params.logprobs:
        # vLLM puts the sampled token first, then the likeliest by rank, which may include the sampled one.
        for entry in entries:
            ranked = sorted(entry.items(), key=lambda item: item[1].rank)[: sequence.params.logprobs]
            sequence.top_logprobs.append(([token for token, _ in ranked], [one.logprob for _, one in ranked]))
    return [entry[token].logprob for token, entry in zip(ids, entries, strict=True)]
