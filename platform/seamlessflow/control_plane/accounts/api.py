"""The base of every project-scoped API class."""

from functools import cached_property

from drf_spectacular.utils import OpenApiParameter
from rest_framework.request import Request
from rest_framework.views import APIView

from seamlessflow.control_plane.accounts.models import Token
from seamlessflow.control_plane.accounts.selectors import Access, access_of
from seamlessflow.control_plane.common.errors import field_error
from seamlessflow.control_plane.common.json_values import text_fault


class ProjectApi(APIView):
    """One operation, or one per method on the same address. `access` says what the caller may see."""

    def initial(self, request: Request, *args: object, **kwargs: object) -> None:
        super().initial(request, *args, **kwargs)
        if request.query_params:
            self._check_query(request)

    def _check_query(self, request: Request) -> None:
        """A parameter that the description of this operation does not have would be ignored: it is refused."""
        accepted = self._described_parameters(request)
        for name, value in request.query_params.items():
            shown = name.replace("\x00", "\ufffd")
            if (fault := text_fault(value)) is not None:
                raise field_error(shown, fault)
            if name not in accepted:
                known = ", ".join(sorted(accepted)) or "none"
                raise field_error(shown, f"is no parameter of this address; accepted: {known}")

    def _described_parameters(self, request: Request) -> set[str]:
        """Of the query, as `extend_schema` declares them for this method."""
        handler = getattr(self, str(request.method).lower(), None)
        if (schema_class := getattr(handler, "kwargs", {}).get("schema")) is None:
            return set()
        schema = schema_class()
        schema.view, schema.method = self, request.method
        declared: list[OpenApiParameter] = schema.get_override_parameters()
        return {parameter.name for parameter in declared if parameter.location == OpenApiParameter.QUERY}

    @cached_property
    def access(self) -> Access:
        token = self.request.auth if isinstance(self.request.auth, Token) else None
        return access_of(user=self.request.user, token=token)
