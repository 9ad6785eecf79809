"""API tokens."""

from rest_framework.authentication import BaseAuthentication


class ApiTokenAuthentication(BaseAuthentication):
    pass
