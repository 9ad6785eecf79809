"""Fields of bodies and paths. People see the identifier `job_…`, the code a UUID; words of an enum are published."""

from enum import StrEnum
from typing import Any
from uuid import UUID

from drf_spectacular.drainage import set_override
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from seamlessflow.core.types.ids import IdKind, parse_id, show_id
from seamlessflow.core.types.limits import Limits, Number, Reason, limits_of


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


class LimitedText(serializers.CharField):
    """Text of one of `core.types.limits`. A grammar is only published here: the service checks it, and names the
    accepted values."""

    def __init__(self, kind: Any, **options: Any) -> None:
        limits = limits_of(kind)
        super().__init__(max_length=None if limits.pattern else limits.max_length, **options)
        if limits.pattern is not None:
            published = {"type": "string", "maxLength": limits.max_length, "pattern": limits.pattern}
            set_override(self, "field", published)


class ReasonField(LimitedText):
    """Why a person does it; events record it."""

    def __init__(self, *, is_required: bool = True, **options: Any) -> None:
        optional = {} if is_required else {"required": False, "default": "", "allow_blank": True}
        super().__init__(Reason, **optional, **options)


class LimitedInteger(serializers.IntegerField):
    def __init__(self, kind: Any, **options: Any) -> None:
        self.limits = limits_of(kind)
        least, most = self.limits.span
        super().__init__(min_value=least, max_value=most, **options)

    def to_internal_value(self, data: Any) -> int:
        number: int = super().to_internal_value(data)
        return _within(self.limits, number)


class LimitedFloat(serializers.FloatField):
    def __init__(self, kind: Any, **options: Any) -> None:
        self.limits = limits_of(kind)
        least, most = self.limits.span
        super().__init__(min_value=least, max_value=most, **options)

    def to_internal_value(self, data: Any) -> float:
        number: float = super().to_internal_value(data)
        return _within(self.limits, number)


LIMITED = {str: LimitedText, int: LimitedInteger, float: LimitedFloat}


def _within(limits: Limits[Any], number: Number) -> Number:
    """Return the number. Raises ValidationError, which names the accepted values."""
    if refusal := limits.refusal(number):
        raise serializers.ValidationError(refusal)
    return number


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
