"""Registers machines: `python -m tests.benchmarks.heartbeat_machines NUM` prints their secrets as JSON."""

import json
import sys

import django

django.setup()

from django.db import transaction  # noqa: E402 - models may be imported only once Django is set up

from seamlessflow.control_plane.cluster.services.machines import machine_register  # noqa: E402


@transaction.atomic
def main(num: int) -> None:
    secrets = [
        machine_register(name=f"beating-{number:05}", tags=["rollout"], author="benchmark")[1]
        for number in range(num)
    ]
    print(json.dumps(secrets), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]))
