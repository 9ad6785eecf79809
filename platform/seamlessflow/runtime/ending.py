"""Ends a process that cannot continue: at once, after logging the reason and what every thread was doing.

Its launcher (ours, Compose, Kubernetes) starts it again; state is in PostgreSQL. Nothing is closed in
order, because what would have to close it is stuck.
"""

import faulthandler
import logging
import os
import sys
from typing import NoReturn

EXIT_STATUS = 70  # EX_SOFTWARE
log = logging.getLogger(__name__)


def process_end(reason: str) -> NoReturn:
    log.critical("%s; this process exits, to be started again. Its threads were doing this:", reason)
    faulthandler.dump_traceback(file=sys.__stderr__ or 2, all_threads=True)
    os._exit(EXIT_STATUS)
