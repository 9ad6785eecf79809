"""`/metrics`: the engine's counters in the Prometheus text format, under vLLM's names and labels."""

from collections.abc import Mapping
from dataclasses import dataclass

from seamlessflow_workers.rollout.engine.engine import Engine

CONTENT_TYPE = "text/plain; version=0.0.4"


@dataclass(frozen=True, slots=True)
class _Metric:
    name: str
    kind: str
    help: str
    samples: tuple[tuple[str, float], ...]  # (further labels, value)


def render_metrics(engine: Engine, *, model_name: str, rejections: Mapping[str, int]) -> str:
    labels = f'engine="0",model_name="{escaped_label(model_name)}"'
    lines: list[str] = []
    for metric in _collect(engine, rejections):
        lines += [f"# HELP {metric.name} {metric.help}", f"# TYPE {metric.name} {metric.kind}"]
        for further, value in metric.samples:
            lines.append(f"{metric.name}{{{labels}{',' + further if further else ''}}} {float(value)}")
    return "\n".join(lines) + "\n"


def _collect(engine: Engine, rejections: Mapping[str, int]) -> list[_Metric]:
    scheduler = engine.scheduler
    counters, table = scheduler.counters, scheduler.table
    num_running = scheduler.num_running
    used = sum(int(valid) for valid, live in zip(table.num_valid, table.is_live, strict=True) if live)
    is_awake = not engine.is_asleep
    finished = tuple(
        (f'finished_reason="{reason}"', float(count)) for reason, count in counters.finished.items()
    )
    refused = (('reason="max_num_queued_reqs"', float(rejections.get("max_num_queued_reqs", 0))),)
    sleep_states = (
        ('sleep_state="awake"', float(is_awake)),
        ('sleep_state="weights_offloaded"', 0.0),
        ('sleep_state="discard_all"', 0.0),
    )
    return [
        _gauge("num_requests_running", "Requests that own a row of the KV cache.", num_running),
        _gauge(
            "num_requests_waiting",
            "Requests waiting for a row.",
            max(0, engine.num_unfinished - num_running),
        ),
        _gauge(
            "kv_cache_usage_perc", "Share of KV cache positions in use; 1 is full.", used / table.tokens.size
        ),
        _Metric("vllm:engine_sleep_state", "gauge", "1 for the state the engine is in.", sleep_states),
        _counter("prompt_tokens_total", "Prompt tokens accepted.", counters.prompt_tokens),
        _counter("generation_tokens_total", "Tokens sampled.", counters.generation_tokens),
        _counter(
            "prefix_cache_queries_total", "Tokens looked up in the prefix cache.", counters.prefix_queries
        ),
        _counter("prefix_cache_hits_total", "Tokens found in the prefix cache.", counters.prefix_hits),
        _counter("num_preemptions_total", "Sequences that had to be computed again.", counters.preemptions),
        _Metric("vllm:request_success_total", "counter", "Finished requests by reason.", finished),
        _Metric("vllm:admission_rejections_total", "counter", "Requests refused by a queue limit.", refused),
    ]


def _gauge(name: str, text: str, value: float) -> _Metric:
    return _Metric(f"vllm:{name}", "gauge", text, (("", value),))


def _counter(name: str, text: str, value: float) -> _Metric:
    return _Metric(f"vllm:{name}", "counter", text, (("", value),))


def escaped_label(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
