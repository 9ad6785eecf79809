"""Fields of bodies and paths. People see the identifier `job_…`, the code a UUID; words of an enum are published."""

from enum import StrEnum
from uuid import UUID

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from seamlessflow.core.types.ids import IdKind, parse_id, show_id


@extend_schema_field(OpenApiTypes.STR)
class ShownIdField(serializers.Field):
    def __init__(self, kind: IdKind, **options: object) -> None:
        super().__init__(**options)
        self.kind = kind

    def to_representation(self, value: UUID) -> str:
        return show_id(self.kind, value)

    def to_internal_value(self, data: str) -> UUID:
        try:
            return parse_id(self.kind, data)
        except ValueError as error:
            raise serializers.ValidationError(str(error)) from error


class WordField(serializers.ChoiceField):
    """A word of an enum, which the OpenAPI document lists."""

    def __init__(self, words: type[StrEnum], **options: object) -> None:
        super().__init__(choices=[(word.value, word.name) for word in words], **options)


class _IdConverter:
    """A path converter. A text that is not an identifier of its kind matches no route, so the answer is 404."""

    regex = "[0-9A-Za-z_-]{26,40}"
    kind: IdKind

    def to_python(self, value: str) -> UUID:
        return parse_id(self.kind, value)

    def to_url(self, value: UUID | str) -> str:
        return value if isinstance(value, str) else show_id(self.kind, value)


class JobIdConverter(_IdConverter):
    kind = IdKind.JOB


class MachineIdConverter(_IdConverter):
    kind = IdKind.MACHINE


class PhaseIdConverter(_IdConverter):
    kind = IdKind.PHASE


class GroupIdConverter(_IdConverter):
    kind = IdKind.GROUP


class SessionIdConverter(_IdConverter):
    kind = IdKind.SESSION


class TokenIdConverter(_IdConverter):
    kind = IdKind.TOKEN
