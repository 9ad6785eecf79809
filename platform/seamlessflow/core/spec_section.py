"""The base of every section of the job spec: strict and frozen; field docstrings become
descriptions."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

MAX_NAME_CHARS = 64
Reference = Annotated[str, Field(min_length=1, max_length=1024)]
InstalledName = Annotated[str, Field(min_length=1, max_length=MAX_NAME_CHARS)]
"""A name that the operator has installed; which ones these are is checked when a job is submitted."""


def extension_name(given: object) -> object:
    """Refuse anything but a name, in one sentence; a union type would report one fault per branch."""
    if not isinstance(given, str) or not 1 <= len(given) <= MAX_NAME_CHARS:
        raise ValueError(f"must be a name of 1 to {MAX_NAME_CHARS} characters, got {str(given)[:100]!r}")
    return given


class SpecSection(BaseModel):
    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        use_attribute_docstrings=True,
        allow_inf_nan=False,
        serialize_by_alias=True,  # written by the names that are read
    )
