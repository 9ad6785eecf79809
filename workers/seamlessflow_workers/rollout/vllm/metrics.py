"""A vLLM engine's `/metrics`: vLLM's own text, except for the numbers that its server process knows better.

vLLM measures after each step of its scheduler. While it is paused there are no steps, so its numbers of running and
waiting requests are stale. Requests refused at the queue's limit never reach it.
"""

from collections.abc import Iterator, Mapping

from prometheus_client import REGISTRY, generate_latest

from seamlessflow_workers.rollout.serving.payloads import escaped_label

RUNNING, WAITING = "vllm:num_requests_running", "vllm:num_requests_waiting"
CACHE_USAGE = "vllm:kv_cache_usage_perc"
REJECTIONS = "vllm:admission_rejections_total"


def render_metrics(
    *, model_name: str, num_unfinished: int, num_parked: int, rejections: Mapping[str, int]
) -> str:
    text = generate_latest(REGISTRY).decode()
    num_waiting = min(num_unfinished, max(num_parked, int(sum(_values(text, WAITING)))))
    usage = sum(_values(text, CACHE_USAGE)) if num_unfinished else 0.0
    labels = f'engine="0",model_name="{escaped_label(model_name)}"'
    own = {
        RUNNING: f"{RUNNING}{{{labels}}} {float(num_unfinished - num_waiting)}",
        WAITING: f"{WAITING}{{{labels}}} {float(num_waiting)}",
        CACHE_USAGE: f"{CACHE_USAGE}{{{labels}}} {usage}",
    }
    own |= {
        f"{REJECTIONS} {reason}": f'{REJECTIONS}{{{labels},reason="{escaped_label(reason)}"}} {float(count)}'
        for reason, count in {"max_num_queued_reqs": 0, **rejections}.items()
    }
    theirs = [
        line for line in text.splitlines() if _name(line) not in (RUNNING, WAITING, CACHE_USAGE, REJECTIONS)
    ]
    return "\n".join([*theirs, *own.values()]) + "\n"


def _name(line: str) -> str:
    """Return the name of the metric that a line is about; works for help and type lines too."""
    words = line.replace("{", " ", 1).split(maxsplit=3)
    if not words:
        return ""
    return words[2] if words[0] == "#" and len(words) > 2 else words[0]


def _values(text: str, name: str) -> Iterator[float]:
    for line in text.splitlines():
        if line.startswith(f"{name}{{"):
            yield float(line.rsplit(" ", 1)[1])
