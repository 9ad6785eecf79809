"""The embedded engine's `/metrics`: its counters in the Prometheus text format, under vLLM's names and labels."""

from collections.abc import Mapping
from dataclasses import dataclass

from seamlessflow_workers.rollout.engine.scheduler import Scheduler
from seamlessflow_workers.rollout.serving.payloads import escaped_label


@dataclass(frozen=True, slots=True)
class _Metric:
    name: str
    kind: str
    help: str
    samples: tuple[tuple[str, float], ...]  # (further labels, value)


def render_metrics(
    scheduler: Scheduler,
    *,
    model_name: str,
    num_unfinished: int,
    is_asleep: bool,
    rejections: Mapping[str, int],
) -> str:
    """`rejections`: counts of refused requests, by reason."""
    labels = f'engine="0",model_name="{escaped_label(model_name)}"'
    lines: list[str] = []
    for metric in _collect(scheduler, num_unfinished, is_asleep, rejections):
        lines += [f"# HELP {metric.name} {metric.help}", f"# TYPE {metric.name} {metric.kind}"]
        for further, value in metric.samples:
            lines.append(f"{metric.name}{{{labels}{',' + further if further else ''}}} {float(value)}")
    return "\n".join(lines) + "\n"


def _collect(
    scheduler: Scheduler, num_unfinished: int, is_asleep: bool, rejections: Mapping[str, int]
) -> list[_Metric]:
    counters, table = scheduler.counters, scheduler.table
    num_running = scheduler.num_running
    used = sum(int(valid) for valid, live in zip(table.num_valid, table.is_live, strict=True) if live)
    finished = tuple(
        (f'finished_reason="{reason}"', float(count)) for reason, count in counters.finished.items()
    )
    refused = (('reason="max_num_queued_reqs"', float(rejections.get("max_num_queued_reqs", 0))),)
    sleep_states = (
        ('sleep_state="awake"', float(not is_asleep)),
        ('sleep_state="weights_offloaded"', 0.0),
        ('sleep_state="discard_all"', 0.0),
    )
    return [
        _gauge("num_requests_running", "Requests that have a row of the KV cache.", num_running),
        _gauge(
            "num_requests_waiting",
            "Requests waiting for a row.",
            max(0, num_unfinished - num_running),
        ),
        _gauge(
            "kv_cache_usage_perc",
            "Fraction of KV cache positions in use; 1 is full.",
            used / table.tokens.size,
        ),
        _Metric("vllm:engine_sleep_state", "gauge", "1 for the state the engine is in.", sleep_states),
        _counter("prompt_tokens_total", "Prompt tokens accepted.", counters.prompt_tokens),
        _counter("generation_tokens_total", "Tokens sampled.", counters.generation_tokens),
        _counter(
            "prefix_cache_queries_total", "Tokens looked up in the prefix cache.", counters.prefix_queries
        ),
        _counter("prefix_cache_hits_total", "Tokens found in the prefix cache.", counters.prefix_hits),
        _counter("num_preemptions_total", "Sequences that had to be recomputed.", counters.preemptions),
        _Metric("vllm:request_success_total", "counter", "Finished requests by reason.", finished),
        _Metric("vllm:admission_rejections_total", "counter", "Requests refused by a queue limit.", refused),
    ]


def _gauge(name: str, text: str, value: float) -> _Metric:
    return _Metric(f"vllm:{name}", "gauge", text, (("", value),))


def _counter(name: str, text: str, value: float) -> _Metric:
    return _Metric(f"vllm:{name}", "counter", text, (("", value),))
