"""Tokens of the caller's projects: list, create (the secret is in this answer only), revoke."""

from http import HTTPStatus
from uuid import UUID

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from seamlessflow.control_plane.accounts.api import ProjectApi
from seamlessflow.control_plane.accounts.selectors import (
    project_for_write,
    project_list_readable,
    token_list_visible,
)
from seamlessflow.control_plane.accounts.services import api_token_create, token_revoke
from seamlessflow.control_plane.common.errors import not_found
from seamlessflow.control_plane.common.fields import ShownIdField
from seamlessflow.control_plane.common.pages import PAGE_PARAMETERS, page_response, page_serializer
from seamlessflow.core.types.ids import IdKind


class TokenOutput(serializers.Serializer):
    id = ShownIdField(IdKind.TOKEN)
    name = serializers.CharField()
    project = serializers.CharField(source="project.slug")
    user = serializers.CharField(source="user.username")
    created_at = serializers.DateTimeField()
    last_used_at = serializers.DateTimeField(allow_null=True)
    expires_at = serializers.DateTimeField(allow_null=True)
    revoked_at = serializers.DateTimeField(allow_null=True)


class TokenCreatedOutput(TokenOutput):
    secret = serializers.CharField(help_text="Shown once.")


class TokenCreateInput(serializers.Serializer):
    name = serializers.CharField(max_length=120)
    project = serializers.SlugField(
        required=False, help_text="May be left out by who is in one project only."
    )


class MyProjectOutput(serializers.Serializer):
    slug = serializers.CharField()
    name = serializers.CharField()
    may_write = serializers.BooleanField()


class MeOutput(serializers.Serializer):
    username = serializers.CharField()
    is_staff = serializers.BooleanField(help_text="May edit machines, which belong to the installation.")
    projects = MyProjectOutput(many=True)


class MeApi(ProjectApi):
    @extend_schema(operation_id="me", responses=MeOutput)
    def get(self, request: Request) -> Response:
        access = self.access
        projects = [
            {"slug": project.slug, "name": project.name, "may_write": project.id in access.writable}
            for project in project_list_readable(access=access)
        ]
        return Response(
            {"username": access.user.username, "is_staff": access.is_operator, "projects": projects}
        )


class TokenListCreateApi(ProjectApi):
    @extend_schema(
        operation_id="token_list", parameters=PAGE_PARAMETERS, responses=page_serializer(TokenOutput)
    )
    def get(self, request: Request) -> Response:
        return page_response(request, token_list_visible(access=self.access), TokenOutput)

    @extend_schema(operation_id="token_create", request=TokenCreateInput, responses={201: TokenCreatedOutput})
    def post(self, request: Request) -> Response:
        body = TokenCreateInput(data=request.data)
        body.is_valid(raise_exception=True)
        access = self.access
        project = project_for_write(access=access, slug=body.validated_data.get("project"))
        token, secret = api_token_create(
            user=access.user, project=project, name=body.validated_data["name"], author=access.author
        )
        return Response(TokenOutput(token).data | {"secret": secret}, status=HTTPStatus.CREATED)


class TokenRevokeApi(ProjectApi):
    @extend_schema(operation_id="token_revoke", responses={204: None})
    def delete(self, request: Request, token_id: UUID) -> Response:
        token = token_list_visible(access=self.access).filter(id=token_id).first()
        if token is None or token.project_id is None:
            raise not_found("token", token_id)
        self.access.check_write(token.project_id)
        token_revoke(token=token, author=self.access.author)
        return Response(status=HTTPStatus.NO_CONTENT)
