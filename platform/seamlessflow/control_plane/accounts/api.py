"""The base of every project-scoped API class."""

from functools import cached_property

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
        for name, value in request.query_params.items():
            if (fault := text_fault(value)) is not None:
                raise field_error(name.replace("\x00", "\ufffd"), fault)

    @cached_property
    def access(self) -> Access:
        token = self.request.auth if isinstance(self.request.auth, Token) else None
        return access_of(user=self.request.user, token=token)
