"""The usage of a turn as OpenAI's Chat Completions and Completions count it: all answers together."""

from seamlessflow.core.protocol.openai_chat import CompletionTokens, PromptTokens, Usage
from seamlessflow.data_plane.turns.trajectory_manager.live import Turn


def turn_usage(turn: Turn) -> Usage:
    num_prompt = turn.plan.num_prompt_tokens
    num_sampled = sum(choice.progress.num_tokens for choice in turn.choices)
    num_reasoning = sum(choice.num_reasoning_tokens for choice in turn.choices)
    return Usage(
        prompt_tokens=num_prompt,
        completion_tokens=num_sampled,
        total_tokens=num_prompt + num_sampled,
        prompt_tokens_details=PromptTokens(cached_tokens=turn.plan.num_cached_tokens),
        completion_tokens_details=CompletionTokens(reasoning_tokens=num_reasoning),
    )
