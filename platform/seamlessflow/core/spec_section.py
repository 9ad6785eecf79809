"""The base of every section of the job spec: strict, frozen, field docstrings become descriptions."""

from pydantic import BaseModel, ConfigDict


class SpecSection(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True, allow_inf_nan=False)
