"""Run the list, or one part of it: `python -m tests.gpu.checklist [--part N] [--device cpu]`.

Each part is a command of at most 9 minutes. It prints a line for each item and writes `part-N.json` and `part-N.log`
to `build/gpu/<device>`. The status is 1 if an item failed. It is started with any Python that has torch; an archive of
packages that are missing there (deploy/local/carried.py) is named with `--carried`.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.fixtures.repository import ROOT

# Where nothing is installed.
sys.path.insert(0, str(ROOT / "platform"))
sys.path.insert(0, str(ROOT / "workers"))

from tests.gpu.checklist.environment import CannotUnpack, interpreter_prepare
from tests.gpu.checklist.plan import ALL, DEVICES
from tests.gpu.checklist.report import State
from tests.gpu.checklist.running import part_run

FAILED, UNUSABLE = 1, 2


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.gpu.checklist", description=__doc__)
    parser.add_argument(
        "--part", choices=list(ALL), action="append", help="default: all, one after the other"
    )
    parser.add_argument(
        "--device", choices=DEVICES, default="cuda", help="cpu tries the list with small sizes"
    )
    parser.add_argument("--out", type=Path, help="folder of the results")
    parser.add_argument("--carried", type=Path, help="archive of packages that this Python lacks")
    options = parser.parse_args(arguments)
    folder: Path = options.out or ROOT / "build" / "gpu" / options.device
    try:
        python = interpreter_prepare(options.carried)
    except CannotUnpack as error:
        print(f"checklist: {error}", file=sys.stderr)
        return UNUSABLE
    results = [
        result
        for name in options.part or list(ALL)
        for result in part_run(ALL[name], options.device, python, folder.resolve())
    ]
    counts = {state: sum(result.state is state for result in results) for state in State}
    told = ", ".join(f"{number} {state}" for state, number in counts.items())
    print(
        f"{options.device}: {told}; {sum(result.seconds for result in results):.0f} s; {folder}", flush=True
    )
    return FAILED if counts[State.FAILED] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
