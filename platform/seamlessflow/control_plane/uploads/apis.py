"""Uploads: `POST /uploads` takes one multipart file and answers with its `artifact://` reference; `GET` lists them."""

import errno
import re
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus

from django.conf import settings
from django.http import HttpRequest
from rest_framework import serializers
from rest_framework.parsers import MultiPartParser
from rest_framework.request import Request
from rest_framework.response import Response

from seamlessflow.control_plane.accounts.apis.base import ProjectApi, ProjectQuery, ProjectsQuery, endpoint
from seamlessflow.control_plane.common.errors import ApplicationError, field_error
from seamlessflow.control_plane.common.http.fields import ShownIdField
from seamlessflow.control_plane.common.http.query import FlagParameter, TextParameter
from seamlessflow.control_plane.uploads.models import Artifact
from seamlessflow.control_plane.uploads.services.artifacts import artifact_create
from seamlessflow.control_plane.uploads.services.handler import IncomingFileHandler
from seamlessflow.core.access.operations import Operation
from seamlessflow.core.types.ids import IdKind, show_id
from seamlessflow.runtime.http.limits import MULTIPART_OVERHEAD_BYTES

MAX_DIGITS = 18


class UploadInput(serializers.Serializer):
    file = serializers.FileField()


class ArtifactOutput(serializers.Serializer):
    id = ShownIdField(IdKind.ARTIFACT)
    uri = serializers.SerializerMethodField(help_text="Reference for job specs: `artifact://…`.")
    name = serializers.CharField()
    is_archive = serializers.BooleanField()
    num_bytes = serializers.IntegerField()
    sha256 = serializers.CharField()
    created_at = serializers.DateTimeField()

    def get_uri(self, artifact: Artifact) -> str:
        return f"artifact://{show_id(IdKind.ARTIFACT, artifact.id)}"


class DigestParameter(TextParameter):
    accepted = "64 digits of 0-9a-f"

    def read(self, text: str) -> str:
        if not re.fullmatch("[0-9a-f]{64}", text):
            raise ValueError(text)
        return text


class UploadsQuery(ProjectsQuery):
    sha256 = DigestParameter(
        "List only uploads of a file with this SHA-256 digest. A file that is listed need not be sent again."
    )


class UploadQuery(ProjectQuery):
    unpack = FlagParameter(
        "Whether the file is a tar or tar.gz of a folder and should be unpacked.", default=False
    )


class UploadApi(ProjectApi):
    parser_classes = [MultiPartParser]

    @endpoint("upload_list", Operation.PROJECT_READ, page=ArtifactOutput, query=UploadsQuery)
    def get(self, request: Request) -> Response:
        """List the uploaded files that you can read, newest first.

        Pass the `sha256` of a file to find out whether it needs to be sent at all.
        """
        artifacts = Artifact.objects.filter(project_id__in=self.project_ids, deleted_at=None)
        if (digest := self.query["sha256"]) is not None:
            artifacts = artifacts.filter(sha256=digest)
        return self.page(artifacts.order_by("-created_at", "-id"))

    @endpoint(
        "upload",
        Operation.UPLOAD,
        {201: ArtifactOutput},
        query=UploadQuery,
        request={"multipart/form-data": UploadInput},
    )
    def post(self, request: Request) -> Response:
        """Upload a file for use in job specs.

        The body is multipart with one field `file`. The answer (201) has an `artifact://` address
        that a spec can name. A file that is too large is refused (413); if the disk is full,
        nothing is kept (507).
        """
        project = self.project
        with _full_disk_refused():
            request.data  # noqa: B018  reading it is what receives the file
            if self._handler.received is None:
                raise field_error("file", "is missing; send the file as the multipart field 'file'")
            artifact = artifact_create(
                project=project,
                user=self.access.user,
                received=self._handler.received,
                is_archive=self.query["unpack"],
                author=self.access.author,
            )
        return Response(ArtifactOutput(artifact).data, status=HTTPStatus.CREATED)

    def initialize_request(self, request: HttpRequest, *args: object, **kwargs: object) -> Request:
        # The request wants its handlers before the body is touched, and for a browser's session already the check
        # against forgery touches it.
        self._handler = IncomingFileHandler(folder=settings.INCOMING_DIR, max_bytes=settings.MAX_UPLOAD_BYTES)
        request.upload_handlers = [self._handler]
        made: Request = super().initialize_request(request, *args, **kwargs)
        return made

    def initial(self, request: Request, *args: object, **kwargs: object) -> None:
        _check_length(request)
        with _full_disk_refused():
            super().initial(request, *args, **kwargs)

    def finalize_response(
        self, request: Request, response: Response, *args: object, **kwargs: object
    ) -> Response:
        self._handler.discard()
        final: Response = super().finalize_response(request, response, *args, **kwargs)
        return final


@contextmanager
def _full_disk_refused() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise ApplicationError(
            "the disk of the artifact store is full; nothing was kept",
            status=HTTPStatus.INSUFFICIENT_STORAGE,
        ) from error


def _check_length(request: Request) -> None:
    text = request.META.get("CONTENT_LENGTH") or "0"
    if not (text.isascii() and text.isdecimal() and len(text) <= MAX_DIGITS):
        raise field_error("Content-Length", f"{text!r} is not accepted; accepted: a number of bytes")
    length = int(text)
    if length > settings.MAX_UPLOAD_BYTES + MULTIPART_OVERHEAD_BYTES:
        raise ApplicationError(
            f"file: larger than the {settings.MAX_UPLOAD_BYTES} bytes accepted (SEAMLESSFLOW_MAX_UPLOAD_BYTES)",
            status=HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        )
