"""The socket at which trainers of other machines meet this machine's trainer.

It takes the address on which the machine listens and the name that others use for it. It returns a bound socket, which
trainers inherit, and its address for the control plane. The socket is bound before anyone learns the address; only a
trainer that leads a gang accepts connections on it.
"""

import socket
from dataclasses import dataclass
from typing import Self

BACKLOG = 128


@dataclass(frozen=True, slots=True)
class Rendezvous:
    listening: socket.socket
    address: str  # host:port, as other machines reach it

    @classmethod
    def open(cls, *, listen_host: str, advertised_host: str) -> Self:
        """Bind the socket. Raises OSError if the host is not an address of this machine."""
        family = socket.AF_INET6 if ":" in listen_host else socket.AF_INET
        listening = socket.create_server((listen_host, 0), family=family, backlog=BACKLOG)
        listening.setblocking(False)
        shown = f"[{advertised_host}]" if ":" in advertised_host else advertised_host
        return cls(listening, f"{shown}:{listening.getsockname()[1]}")

    def close(self) -> None:
        self.listening.close()
