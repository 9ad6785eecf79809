"""A program for the fork server: computes on the device that it is given, and prints what it found as a JSON line."""

import json
import sys

import torch

from seamlessflow_workers.process.fork_server.preloading import is_cuda_initialized

NUM_NUMBERS = 1000


def main(device: str) -> None:
    was_initialized = is_cuda_initialized()
    numbers = torch.arange(NUM_NUMBERS, dtype=torch.float64, device=device)
    row = {
        "was_initialized": was_initialized,
        "total": float((numbers * numbers).sum()),
        "is_initialized": is_cuda_initialized(),
    }
    print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
