"""The gateway's Prometheus metrics."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

REGISTRY = CollectorRegistry()
_SECONDS = (0.005, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0)


def _counter(name: str, text: str, labels: tuple[str, ...] = ()) -> Counter:
    return Counter(f"seamlessflow_gateway_{name}", text, labels, registry=REGISTRY)


def _histogram(name: str, text: str) -> Histogram:
    return Histogram(f"seamlessflow_gateway_{name}", text, registry=REGISTRY, buckets=_SECONDS)


TURNS = _counter("turns", "Turns acknowledged.")
SAMPLED_TOKENS = _counter("sampled_tokens", "Tokens of acknowledged turns.")
EVALUATION_TOKENS = _counter(
    "evaluation_tokens", "Tokens of acknowledged turns that belong to evaluations and are never trained."
)
WASTED_TOKENS = _counter("wasted_tokens", "Tokens sampled and discarded.")
HANDOVERS = _counter("handovers", "Times a request moved to another engine.")
CONTINUATIONS = _counter("continuations", "Hand-overs that continued from tokens already sampled.")
RETRIES = _counter(
    "retries", "Retries: answered from the store, continued, or of an earlier attempt.", ("how",)
)
DRIFTS = _counter("drifts", "How requests joined their trees.", ("drift",))
PROMPTS_REUSED = _counter("prompts_reused", "Prompts that an equal request of the same job had made.")
TAILS_SENT = _counter("tails_sent", "Turns of which a helper got only the last messages.")
RENDERED_WHOLE = _counter(
    "rendered_whole", "Turns whose last messages were not enough, so that all were sent."
)
REFUSALS = _counter("refusals", "Requests refused.", ("status",))
GROUPS_READY = _counter("groups_ready", "Rollout groups completed.")
GROUPS_EVALUATED = _counter("groups_evaluated", "Groups of held-out tasks measured.")
GROUPS_DROPPED = _counter("groups_dropped", "Rollout groups that will never train.")
BATCHES = _counter("batches", "Training batches assembled.")
IN_FLIGHT = Gauge("seamlessflow_gateway_turns_in_flight", "Turns in progress.", registry=REGISTRY)
HELD = Gauge("seamlessflow_gateway_turns_held", "Turns waiting for an engine.", registry=REGISTRY)
SUSPECTED = Gauge(
    "seamlessflow_gateway_engines_suspected",
    "Engines that stopped answering and have not sampled a token since.",
    registry=REGISTRY,
)
GATEWAYS = Gauge("seamlessflow_gateway_members", "Gateways that share the sessions.", registry=REGISTRY)
FORWARDED = _counter("forwarded", "Requests passed on to the gateway that serves them.", ("what",))
CLAIMS = _counter("claims", "Sessions taken over from a gateway that is gone.")
EVICTIONS = _counter("evictions", "Idle sessions dropped from memory; their next request reads them back.")
TREE_BYTES = Gauge("seamlessflow_gateway_tree_bytes", "Memory of the sessions in it.", registry=REGISTRY)
LIVE_SESSIONS = Gauge("seamlessflow_gateway_live_sessions", "Sessions in memory.", registry=REGISTRY)
MAX_GAP = _histogram("max_gap_seconds", "Longest time without a token within a turn.")
TURN = _histogram("turn_seconds", "Time from request to acknowledgement.")
FLUSH = _histogram("flush_seconds", "Time of one group commit.")
