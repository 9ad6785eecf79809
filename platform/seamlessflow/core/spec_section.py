"""The base of every section of the job spec: strict and frozen; field docstrings become descriptions, and names of
fields their titles and units.

The form of the dashboard, the command line and submission read further keywords of the exported JSON Schema:
`x-upload` (the value may be the address of an uploaded `archive` or `file`), `x-reference` (it names `jobs`), `x-group`
(how the form shows a section at first, by `data.source`) and `x-default-with` (the default once another field is set).
"""

from collections.abc import Iterator
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, GetJsonSchemaHandler
from pydantic.config import JsonDict

WORDS = {
    "num": "number of",
    "dtype": "dtype",
    "kl": "KL",
    "gae": "GAE",
    "sft": "SFT",
    "ttl": "TTL",
    "zero": "ZeRO",
    "lora": "LoRA",
    "len": "length",
    "seqs": "sequences",
}
# By the last word of a field's name.
UNITS = {"s": "seconds", "len": "tokens", "turn": "tokens"} | {
    word: word for word in ("bytes", "tokens", "updates")
}
MAX_NAME_CHARS = 64
Reference = Annotated[str, Field(min_length=1, max_length=1024)]
ARCHIVE: JsonDict = {"x-upload": "archive"}
FILE: JsonDict = {"x-upload": "file"}
JOBS: JsonDict = {"x-reference": "jobs"}
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

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: Any, handler: GetJsonSchemaHandler) -> Any:
        schema = handler(core_schema)
        for name, field in handler.resolve_ref_schema(schema).get("properties", {}).items():
            unit = UNITS.get(name.split("_")[-1])
            field |= {"title": title_of(name)} | ({"x-unit": unit} if unit else {})
        return schema

    @classmethod
    def uploads(cls) -> Iterator[tuple[str, str]]:
        """Yield (section, field) of each field whose value may be the address of an upload."""
        for section, shape in cls.model_fields.items():
            for name, field in getattr(shape.annotation, "model_fields", {}).items():
                if field.json_schema_extra in (ARCHIVE, FILE):
                    yield section, name


def title_of(name: str) -> str:
    """Return the label of a field.

    >>> title_of("max_num_seqs"), title_of("timeout_s"), title_of("kl_coef")
    ('Max number of sequences', 'Timeout', 'KL coef')
    """
    stem = name.removesuffix("_s").removesuffix("_bytes")
    text = " ".join(WORDS.get(word, word) for word in stem.split("_"))
    return text if stem in WORDS else text[0].upper() + text[1:]
