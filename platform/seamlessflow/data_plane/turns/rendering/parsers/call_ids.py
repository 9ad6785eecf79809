"""Identifiers of tool calls whose format carries none.

Invariant: all calls of one answer have the same stem, by which clients' parallel calls are joined again.
"""

import hashlib
import re
import secrets
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CallIds:
    """One form of identifiers: prefix, stem and number, both in hexadecimal digits."""

    prefix: str
    num_stem_digits: int
    num_number_digits: int

    def new_stem(self) -> str:
        return self.prefix + secrets.token_hex(self.num_stem_digits)[: self.num_stem_digits]

    def stem_of(self, seed: bytes) -> str:
        """Return a stem that only depends on the seed."""
        return self.prefix + hashlib.blake2b(seed, digest_size=16).hexdigest()[: self.num_stem_digits]

    def call_id(self, stem: str, number: int) -> str:
        """Return the identifier of call `number` (from 0) of the answer with this stem."""
        return f"{stem}{number:0{self.num_number_digits}x}"

    def stem(self, call_id: str) -> str | None:
        """Return the stem of an identifier; None if it does not have this form."""
        pattern = f"({re.escape(self.prefix)}[0-9a-f]{{{self.num_stem_digits}}})[0-9a-f]{{{self.num_number_digits}}}"
        found = re.fullmatch(pattern, call_id)
        return found[1] if found else None


LONG_IDS = CallIds("call_", 20, 4)
SHORT_IDS = CallIds(
    "", 7, 2
)  # Mistral's templates refuse identifiers that do not have nine letters or digits


def call_stem(call_id: str) -> str | None:
    """Return the stem of the identifiers of all calls of one answer; None if the gateway did not make this one."""
    return LONG_IDS.stem(call_id) or SHORT_IDS.stem(call_id)
