"""The problems of a submitted spec, in words for the person who wrote it.

Turns a validation error into one sentence per fault, each with the field that it is about.
"""

import difflib
from collections.abc import Iterator
from typing import get_args

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo


class WrongField(ValueError):
    """A rule on several fields was broken; it names the field to change, which may be in another section."""

    def __init__(self, field: str, detail: str) -> None:
        super().__init__(detail)
        self.field = field


class SpecProblem(BaseModel):
    """One thing wrong with a submitted spec, in words for the person who wrote it."""

    field: str
    detail: str


def spec_problems(error: ValidationError, spec: type[BaseModel]) -> Iterator[SpecProblem]:
    """Yields one problem per fault that pydantic found; for an unknown key it suggests the nearest
    known one."""
    for fault in error.errors(include_url=False):
        path = [str(key) for key in fault["loc"]]
        if fault["type"] == "extra_forbidden":
            yield SpecProblem(field=".".join(path), detail=_unknown_key(path, spec))
            continue
        if isinstance(wrong := fault.get("ctx", {}).get("error"), WrongField):
            yield SpecProblem(field=wrong.field, detail=str(wrong))
            continue
        shown = "" if fault["type"] in ("missing", "value_error") else f", got {fault['input']!r}"
        yield SpecProblem(field=".".join(path), detail=f"{fault['msg']}{shown}")


def _unknown_key(path: list[str], spec: type[BaseModel]) -> str:
    known = list(_fields(_section_at(path[:-1], spec)))
    near = difflib.get_close_matches(path[-1], known, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else f"; known keys: {', '.join(sorted(known))}"
    return f"unknown key {path[-1]!r}{hint}"


def _section_at(path: list[str], spec: type[BaseModel]) -> type[BaseModel]:
    section = spec
    for key in path:
        annotation = _fields(section)[key].annotation
        kinds = (annotation, *get_args(annotation))  # an optional section is a union with None
        found = next((kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)), None)
        if found is None:
            break
        section = found
    return section


def _fields(section: type[BaseModel]) -> dict[str, FieldInfo]:
    """Return the fields of a section by the names that people write."""
    return {field.alias or name: field for name, field in section.model_fields.items()}
