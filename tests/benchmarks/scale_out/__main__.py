"""Run some parts of the benchmark: `python -m tests.benchmarks.scale_out PART…`; the table goes to standard output."""

import argparse
import asyncio
import sys
from collections.abc import Sequence

from tests.benchmarks.report import meanings, table
from tests.benchmarks.scale_out import PARTS, measure


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.scale_out", description=__doc__)
    parser.add_argument("parts", nargs="+", choices=PARTS)
    rows = asyncio.run(measure(parser.parse_args(arguments).parts))
    sys.stdout.write(f"{table(rows)}\n\n{meanings(rows)}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
