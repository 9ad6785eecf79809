"""Describes an operation of the REST API in OpenAPI.

Takes a view and its method. Returns a summary and a description from the docstring of the handler (`get`, `post`, …),
descriptions of path parameters, and the answer to a refused request. Invariant: only the docstring of the handler is
published, so it is written for the caller; docstrings of classes stay internal.
"""

import inspect
from typing import Any, Literal

from drf_spectacular.openapi import AutoSchema
from rest_framework import serializers

PROBLEM_TYPE = "application/problem+json"
PATH_PARAMETERS = {
    "group_id": "Identifier of the rollout group, `grp_…`.",
    "index": "Number of the node in its session, from 0.",
    "job_id": "Identifier of the job, `job_…`.",
    "machine_id": "Identifier of the machine, `mac_…`.",
    "phase_id": "Identifier of the phase, `pha_…`.",
    "session_id": "Identifier of the session, `ses_…`.",
    "slug": "Slug of the project.",
    "pool": "Name of the pool.",
    "table": "`sessions.parquet` or `nodes.parquet`.",
    "token_id": "Identifier of the token, `tok_…`.",
    "username": "User name of the member.",
    "version": "Number of the policy version.",
}


class FaultOutput(serializers.Serializer):
    field = serializers.CharField(
        help_text="The field of the body, the parameter or the header that is wrong."
    )
    detail = serializers.CharField(help_text="What is wrong and what is accepted.")


class ProblemOutput(serializers.Serializer):
    """RFC 9457."""

    type = serializers.CharField(help_text="Always `about:blank`.")
    title = serializers.CharField(help_text="The standard phrase for the status.")
    status = serializers.IntegerField()
    detail = serializers.CharField(help_text="What is wrong, in one sentence.")
    errors = FaultOutput(many=True)


class PublishedOperation(AutoSchema):
    """Describes an operation by the docstring of its handler."""

    def get_summary(self) -> str:
        return self._text().partition("\n\n")[0].replace("\n", " ").removesuffix(".")

    def get_description(self) -> str:
        paragraphs = self._text().split("\n\n")
        return "\n\n".join(paragraph.replace("\n", " ") for paragraph in paragraphs)

    def get_operation(self, *args: Any, **kwargs: Any) -> dict[str, Any] | None:
        operation: dict[str, Any] | None = super().get_operation(*args, **kwargs)
        for parameter in (operation or {}).get("parameters", ()):
            if parameter["in"] == "path":
                parameter.setdefault("description", PATH_PARAMETERS.get(parameter["name"], ""))
        return operation

    def _get_response_bodies(self, direction: Literal["request", "response"] = "response") -> dict[str, Any]:
        bodies: dict[str, Any] = super()._get_response_bodies(direction)
        problem: dict[str, Any] = self._get_response_for_code(  # type: ignore[no-untyped-call]
            ProblemOutput, "default", media_types=[PROBLEM_TYPE]
        )
        return bodies | {"default": problem | {"description": self._refusals()}}

    def _refusals(self) -> str:
        """Describe the refusals of every operation; an operation's own description names the others."""
        missing = (
            " or something that it names does not exist in your projects (404)" if "{" in self.path else ""
        )
        return (
            "The request is refused: it is invalid (400), it has no valid credential (401), the caller may not do "
            f"this (403){missing}. 503 with `Retry-After`: the platform is temporarily unavailable."
        )

    def _text(self) -> str:
        handler = getattr(self.view, self.method.lower())
        return inspect.cleandoc(handler.__doc__ or "")
