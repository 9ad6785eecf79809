"""Tokens of the caller's projects: list, create (the secret is in this answer only), revoke."""

from http import HTTPStatus
from uuid import UUID

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from seamlessflow.control_plane.accounts.apis.base import ProjectApi, endpoint
from seamlessflow.control_plane.accounts.selectors.access import (
    project_for,
    project_list_readable,
    token_list_visible,
)
from seamlessflow.control_plane.accounts.services.people import (
    api_token_mint,
    token_revocation_check,
    token_revoke,
)
from seamlessflow.control_plane.common.errors import field_error, not_found
from seamlessflow.control_plane.common.http.fields import LimitedText, ShownIdField
from seamlessflow.core.access.minting import DEFAULT_LIFETIME_DAYS, DEFAULT_SCOPES, MAX_LIFETIME_DAYS
from seamlessflow.core.access.operations import Operation, ProjectRole, Scope
from seamlessflow.core.types.ids import IdKind, show_id
from seamlessflow.core.types.limits import DisplayName


class TokenOutput(serializers.Serializer):
    id = ShownIdField(IdKind.TOKEN)
    name = serializers.CharField()
    project = serializers.CharField(
        source="project.slug",
        allow_null=True,
        default=None,
        help_text="Slug of the project; null for a token of the installation.",
    )
    scopes = serializers.ListField(child=serializers.CharField())
    user = serializers.CharField(source="user.username")
    created_at = serializers.DateTimeField()
    last_used_at = serializers.DateTimeField(allow_null=True)
    expires_at = serializers.DateTimeField(allow_null=True)
    revoked_at = serializers.DateTimeField(allow_null=True)


class TokenCreatedOutput(TokenOutput):
    secret = serializers.CharField(help_text="The secret. It is shown only in this answer.")


class TokenCreateInput(serializers.Serializer):
    name = LimitedText(DisplayName)
    project = serializers.SlugField(
        required=False, help_text="Slug of the project. May be left out if you are in one project only."
    )
    installation = serializers.BooleanField(
        required=False,
        help_text=(
            "Make the token valid for all of your projects and, with the scope `operate`, for machines. For "
            "operators only."
        ),
    )
    scopes = serializers.ListField(
        child=serializers.ChoiceField(choices=[scope.value for scope in Scope]),
        required=False,
        help_text=f"Default: {', '.join(sorted(DEFAULT_SCOPES))}. A token cannot give scopes that it lacks.",
    )
    expires_in_days = serializers.IntegerField(
        required=False,
        help_text=(
            f"1 to {MAX_LIFETIME_DAYS}. Default: {DEFAULT_LIFETIME_DAYS}, or the remaining lifetime of the token "
            "that you use if that is shorter."
        ),
    )


class MyProjectOutput(serializers.Serializer):
    slug = serializers.CharField()
    name = serializers.CharField()
    role = serializers.CharField(help_text=", ".join(ProjectRole))
    may_write = serializers.BooleanField(help_text="Whether you may submit jobs with this credential.")


class MyTokenOutput(serializers.Serializer):
    name = serializers.CharField()
    scopes = serializers.ListField(child=serializers.CharField())
    expires_at = serializers.DateTimeField(allow_null=True)


class MeOutput(serializers.Serializer):
    username = serializers.CharField()
    is_staff = serializers.BooleanField(
        help_text="Whether you are an operator, who may edit the machines of the installation."
    )
    token = MyTokenOutput(allow_null=True, help_text="The token in use; null for a browser session.")
    projects = MyProjectOutput(many=True)


class MeApi(ProjectApi):
    @endpoint("me", Operation.ABOUT_ME, MeOutput)
    def get(self, request: Request) -> Response:
        """Show who you are: your user name, your projects with your role in each, and the token in use."""
        access = self.access
        projects = [
            {
                "slug": project.slug,
                "name": project.name,
                "role": access.roles[project.id],
                "may_write": access.may(Operation.JOB_SUBMIT, project.id),
            }
            for project in project_list_readable(access=access)
        ]
        me = {
            "username": access.user.username,
            "is_staff": access.is_operator,
            "token": access.token,
            "projects": projects,
        }
        return Response(MeOutput(me).data)


class TokenListCreateApi(ProjectApi):
    @endpoint("token_list", Operation.TOKEN_LIST, page=TokenOutput)
    def get(self, request: Request) -> Response:
        """List the API tokens that you can see, with scopes, expiry and last use, never their secrets."""
        return self.page(token_list_visible(access=self.access))

    @endpoint("token_create", Operation.TOKEN_CREATE, {201: TokenCreatedOutput}, request=TokenCreateInput)
    def post(self, request: Request) -> Response:
        """Create an API token for a project, or with `installation` for the whole installation.

        The secret is shown only in this answer (201). A token never allows more than its owner may
        do, and only operators create tokens for the installation.
        """
        body, access = self.body, self.access
        is_installation = body.get("installation", False)
        if is_installation and "project" in body:
            raise field_error("project", "must be left out if `installation` is true")
        project = None
        if not is_installation:
            project = project_for(access=access, slug=body.get("project"), operation=self.endpoint.operation)
        scopes = {Scope(scope) for scope in body["scopes"]} if "scopes" in body else None
        token, secret = api_token_mint(
            access=access, project=project, name=body["name"], scopes=scopes, days=body.get("expires_in_days")
        )
        return Response(TokenOutput(token).data | {"secret": secret}, status=HTTPStatus.CREATED)


class TokenRevokeApi(ProjectApi):
    @endpoint("token_revoke", Operation.TOKEN_REVOKE, {204: None})
    def delete(self, request: Request, token_id: UUID) -> Response:
        """Revoke an API token. Requests that use it are answered 401 from then on.

        You can revoke your own tokens; owners can revoke every token of their project.
        """
        token = token_list_visible(access=self.access).filter(id=token_id).first()
        if token is None:
            raise not_found("token", show_id(IdKind.TOKEN, token_id))
        token_revocation_check(access=self.access, token=token)
        token_revoke(token=token, author=self.access.author)
        return Response(status=HTTPStatus.NO_CONTENT)
