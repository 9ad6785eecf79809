"""How every process writes its log: a line per record, with the moment in UTC.

Hosts of one installation may be in several zones, and their logs are read together, so a line names its zone. It begins
like `2026-11-27T15:55:54.012Z INFO seamlessflow.data_plane: …`.
"""

import logging
import sys
import time

LINE = "%(asctime)s %(levelname)s %(name)s: %(message)s"


class UtcFormatter(logging.Formatter):
    converter = staticmethod(time.gmtime)
    default_time_format = "%Y-%m-%dT%H:%M:%S"
    default_msec_format = "%s.%03dZ"


def log_to_stderr() -> None:
    """Write the records of this process to its standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(UtcFormatter(LINE))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
