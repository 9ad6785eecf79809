"""Members of a project over REST. Members see one another; owners add, change and remove."""

from http import HTTPStatus

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from seamlessflow.control_plane.accounts.apis.base import ProjectApi, endpoint
from seamlessflow.control_plane.accounts.models import MembershipRole, Project
from seamlessflow.control_plane.accounts.services.members import (
    member_add,
    member_change,
    member_list,
    member_remove,
    project_get,
)
from seamlessflow.control_plane.common.http.fields import LimitedText
from seamlessflow.core.access.operations import Operation
from seamlessflow.core.types.limits import UserName

ROLE_HELP = (
    "viewer: sees everything; member: also submits jobs and edits their own; owner: also edits the jobs of others, "
    "the members and the retention policy."
)


class MemberOutput(serializers.Serializer):
    username = serializers.CharField(source="user.username")
    role = serializers.CharField(help_text=ROLE_HELP)
    is_active = serializers.BooleanField(
        source="user.is_active", help_text="Whether the account is open; a closed account cannot sign in."
    )
    last_sign_in_at = serializers.DateTimeField(
        source="user.last_login",
        allow_null=True,
        help_text="Time of the last sign-in with a browser; null if there was none.",
    )


class MemberAddedOutput(MemberOutput):
    sign_in_link = serializers.CharField(
        help_text=(
            "Sign-in link of a new account. It works once, within a day, and is shown only in this answer. Empty if "
            "the account already existed."
        )
    )


class MemberInput(serializers.Serializer):
    username = LimitedText(UserName)
    role = serializers.ChoiceField(MembershipRole.choices, default=MembershipRole.MEMBER, help_text=ROLE_HELP)
    invite = serializers.BooleanField(
        default=False,
        help_text="Create the account if it does not exist, and return a sign-in link.",
    )


class MemberRoleInput(serializers.Serializer):
    role = serializers.ChoiceField(MembershipRole.choices, help_text=ROLE_HELP)


class _MembersApi(ProjectApi):
    def project_named(self, slug: str) -> Project:
        return project_get(access=self.access, slug=slug, operation=self.endpoint.operation)


class MemberListAddApi(_MembersApi):
    @endpoint("member_list", Operation.PROJECT_READ, page=MemberOutput)
    def get(self, request: Request, slug: str) -> Response:
        """List the members of a project with their roles."""
        project = self.project_named(slug)
        return self.page(member_list(project=project))

    @endpoint("member_add", Operation.MEMBER_EDIT, {201: MemberAddedOutput}, request=MemberInput)
    def post(self, request: Request, slug: str) -> Response:
        """Add a member to a project. For owners of the project.

        The user must exist, unless `invite` is true: then an account is created, and the answer
        has a sign-in link that works once.
        """
        project = self.project_named(slug)
        added = member_add(
            project=project,
            username=self.body["username"],
            role=MembershipRole(self.body["role"]),
            is_invited=self.body["invite"],
            author=self.access.author,
        )
        answer = MemberOutput(added.membership).data | {"sign_in_link": added.sign_in_link}
        return Response(answer, status=HTTPStatus.CREATED)


class MemberDetailApi(_MembersApi):
    @endpoint("member_change", Operation.MEMBER_EDIT, MemberOutput, request=MemberRoleInput)
    def patch(self, request: Request, slug: str, username: str) -> Response:
        """Change the role of a member. For owners of the project.

        The last owner of a project cannot become anything else (409).
        """
        project = self.project_named(slug)
        role = MembershipRole(self.body["role"])
        membership = member_change(project=project, username=username, role=role, author=self.access.author)
        return Response(MemberOutput(membership).data)

    @endpoint("member_remove", Operation.MEMBER_EDIT, {204: None})
    def delete(self, request: Request, slug: str, username: str) -> Response:
        """Remove a member from a project. For owners of the project.

        The member's tokens of the project end, and their open pages close within seconds. The last
        owner cannot be removed (409).
        """
        project = self.project_named(slug)
        member_remove(project=project, username=username, author=self.access.author)
        return Response(status=HTTPStatus.NO_CONTENT)
