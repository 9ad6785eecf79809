"""Base of every API class for people: finds the operation of the address and refuses tokens without its scope."""

from functools import cached_property

from drf_spectacular.utils import OpenApiParameter
from rest_framework.request import Request
from rest_framework.views import APIView

from seamlessflow.control_plane.accounts.models import Token
from seamlessflow.control_plane.accounts.selectors.access import Access, access_of
from seamlessflow.control_plane.common.errors import field_error
from seamlessflow.control_plane.common.files.json_values import text_fault
from seamlessflow.core.access.operations import RULES, Operation
from seamlessflow.core.access.routes import operation_of


class ProjectApi(APIView):
    """An address with one operation per method. `access` has the caller's rights.

    Invariant: an address without a row in `core.access.routes` refuses every request.
    """

    def initial(self, request: Request, *args: object, **kwargs: object) -> None:
        super().initial(request, *args, **kwargs)
        if request.query_params:
            self._check_query(request)
        operation = self._operation(request)
        # If the address names an object, the view first checks that the caller may see it.
        if operation is not None and not (RULES[operation].is_operators and kwargs):
            self.access.check(operation)

    def _operation(self, request: Request) -> Operation | None:
        """Return the operation of this address and method in the table of routes; None if there is no such method."""
        method = "GET" if request.method == "HEAD" else str(request.method)
        if method == "OPTIONS" or getattr(self, method.lower(), None) is None:
            return None
        assert request.resolver_match is not None
        return operation_of(method, request.resolver_match.route)

    def _check_query(self, request: Request) -> None:
        """Refuse query parameters that the operation does not declare; otherwise they would be ignored."""
        accepted = self._described_parameters(request)
        for name, value in request.query_params.items():
            shown = name.replace("\x00", "\ufffd")
            if (fault := text_fault(value)) is not None:
                raise field_error(shown, fault)
            if name not in accepted:
                known = ", ".join(sorted(accepted)) or "none"
                raise field_error(shown, f"is not a parameter of this address; accepted: {known}")

    def _described_parameters(self, request: Request) -> set[str]:
        """Return the query parameters that `extend_schema` declares for this method."""
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
