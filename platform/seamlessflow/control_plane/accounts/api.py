"""The base of every project-scoped API class."""

from functools import cached_property

from rest_framework.views import APIView

from seamlessflow.control_plane.accounts.models import Token
from seamlessflow.control_plane.accounts.selectors import Access, access_of


class ProjectApi(APIView):
    """One operation, or one per method on the same address. `access` says what the caller may see."""

    @cached_property
    def access(self) -> Access:
        token = self.request.auth if isinstance(self.request.auth, Token) else None
        return access_of(user=self.request.user, token=token)
