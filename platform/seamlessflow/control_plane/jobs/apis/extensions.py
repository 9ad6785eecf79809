"""The extensions that the operator has installed: a job spec may name them beside what its schema lists."""

from collections.abc import Mapping
from typing import Any

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from seamlessflow.control_plane.accounts.apis.base import ProjectApi, endpoint
from seamlessflow.core.access.operations import Operation
from seamlessflow.core.extensions.built_in import BUILT_IN
from seamlessflow.runtime.extensions import Declaration, extensions_installed


class ExtensionOutput(serializers.Serializer):
    name = serializers.CharField()
    summary = serializers.CharField()
    is_built_in = serializers.BooleanField()
    options = serializers.DictField(help_text="JSON Schema of the options.")


class ExtensionsOutput(serializers.Serializer):
    environments = ExtensionOutput(many=True, help_text="For environment.name.")
    rewards = ExtensionOutput(many=True, help_text="For environment.reward.")
    advantages = ExtensionOutput(
        many=True, help_text="Names for `algorithm.advantage`, in addition to the built-in estimators."
    )


class ExtensionListApi(ProjectApi):
    @endpoint("extension_list", Operation.PROJECT_READ, ExtensionsOutput)
    def get(self, request: Request) -> Response:
        """List what job specs may name: environments, reward functions and advantage estimators.

        Each comes with the JSON Schema of the options. `is_built_in` distinguishes the platform's own from those that
        installed packages add.
        """
        installed = extensions_installed()
        found = {
            "environments": _listed(installed.environments, BUILT_IN.environments),
            "rewards": _listed(installed.rewards, BUILT_IN.rewards),
            "advantages": _listed(installed.advantages, BUILT_IN.advantages),
        }
        return Response(ExtensionsOutput(found).data)


def _listed(declared: Mapping[str, Declaration], built_in: Mapping[str, Declaration]) -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "summary": one.summary,
            "is_built_in": name in built_in,
            "options": one.options.model_json_schema(),
        }
        for name, one in sorted(declared.items())
    ]
