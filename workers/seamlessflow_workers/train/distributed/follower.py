"""A rank of a trainer that is not the first of its machine.

It is started as `python -m seamlessflow_workers.train.distributed.follower FD`. The first rank sends commands over the
inherited socket FD, and this rank executes its slice of each. It has no credential and no connection to a plane.
"""

import logging
import socket
import sys

from seamlessflow.core.liveness.device_errors import is_device_error
from seamlessflow.runtime.logs import log_to_stderr
from seamlessflow_workers.train.checkpoint import CheckpointReadError
from seamlessflow_workers.train.control import die_with_parent, end_process
from seamlessflow_workers.train.distributed.rank_commands import Load, carry_out, command_receive
from seamlessflow_workers.train.distributed.rank_group import EXIT_DEVICE_FAILED, follower_join
from seamlessflow_workers.train.step_engine import ModelLoadError, RankGone, StepEngine

logger = logging.getLogger(__name__)

EXIT_NOT_LOADED = 2


def main(descriptor: int) -> None:
    die_with_parent()
    log_to_stderr()
    connection = socket.socket(fileno=descriptor)
    try:
        load = command_receive(connection)
        assert isinstance(load, Load)
        obey(connection, follower_join(load))
    except RankGone as error:
        end_process(0, str(error))
    except (ModelLoadError, CheckpointReadError) as error:
        end_process(EXIT_NOT_LOADED, str(error))
    except RuntimeError as error:
        if not is_device_error(str(error)):
            raise
        end_process(EXIT_DEVICE_FAILED, str(error).splitlines()[0])


def obey(connection: socket.socket, engine: StepEngine) -> None:
    """Obey until rank 0 is gone. Commands that arrive during a collective wait in the socket."""
    while True:
        carry_out(command_receive(connection), engine)


if __name__ == "__main__":
    main(int(sys.argv[1]))
