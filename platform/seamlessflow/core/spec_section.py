"""The base of every section of the job spec: strict and frozen; field docstrings become
descriptions."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Reference = Annotated[str, Field(min_length=1, max_length=1024)]


class SpecSection(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True, allow_inf_nan=False)
