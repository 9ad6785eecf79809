"""Labels of a machine: its report of its hardware, in the form of tags, so that jobs can ask for it.

Enters: what a supervisor reported. Leaves: `gpu=h100`, `gpus=8` and `host=node-7`. Placement matches labels like tags.
Invariant: a label cannot be edited, and no tag has the name of one, so a label is always as the machine reports it.
"""

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from seamlessflow.core.types.limits import Tag, limits_of

GPU, NUM_GPUS, HOST = "gpu", "gpus", "host"
LABEL_NAMES = (GPU, NUM_GPUS, HOST)
_NOT_IN_TAGS = re.compile(r"[^a-z0-9._-]+")
_BRANDS = {"nvidia", "tesla", "geforce", "quadro"}
_SERIES = {"rtx", "gtx"}


def is_label(text: str) -> bool:
    name, separator, _ = text.partition("=")
    return bool(separator) and name in LABEL_NAMES


def labels_of(capabilities: Mapping[str, Any]) -> frozenset[str]:
    """Return the labels of a machine that reported these capabilities (`core.protocol.worker.Capabilities` as JSON).
    GPUs that are cordoned are not counted."""
    cordoned = capabilities.get("device_problems", {})
    names = [
        gpu_model(str(device["name"]))
        for device in capabilities.get("devices", ())
        if device["kind"] == "cuda" and device["id"] not in cordoned
    ]
    labels = {_label(GPU, name) for name in names}
    if names:
        labels.add(_label(NUM_GPUS, str(len(names))))
    if host := capabilities.get("host"):
        labels.add(_label(HOST, str(host)))
    return frozenset(labels)


def hardware_of(labels: Iterable[str]) -> frozenset[str]:
    """Return the labels that distinguish hardware, without the host's name."""
    return frozenset(label for label in labels if not label.startswith(f"{HOST}="))


def gpu_model(name: str) -> str:
    """Return the short name of a GPU: `h100` for `NVIDIA H100 80GB HBM3`, `rtx-4090` for `NVIDIA GeForce RTX 4090`."""
    words = [word for word in re.split(r"[\s-]+", name.lower()) if word and word not in _BRANDS]
    for index, word in enumerate(words):
        if any(letter.isdigit() for letter in word):
            before = words[index - 1] if index else ""
            return f"{before}-{word}" if before in _SERIES else word
    return "-".join(words)


def refused_labels(tags: Collection[str]) -> str:
    """Return in one sentence which of the tags cannot be given, because a machine reports them itself; "" if none."""
    named = sorted(tag for tag in tags if is_label(tag))
    if not named:
        return ""
    return (
        f"tag {named[0]!r} cannot be given: {', '.join(LABEL_NAMES)} are labels, which a machine reports of its own "
        "hardware; choose another name"
    )


def _label(name: str, value: str) -> str:
    return f"{name}={_NOT_IN_TAGS.sub('-', value.lower()).strip('-')}"[: limits_of(Tag).max_length]
