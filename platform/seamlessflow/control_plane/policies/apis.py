"""Versions over REST: one of them as a folder that transformers loads, sent as a tar."""

from collections.abc import Iterator
from contextlib import ExitStack
from uuid import UUID

from django.http import StreamingHttpResponse
from drf_spectacular.types import OpenApiTypes
from rest_framework.request import Request

from seamlessflow.control_plane.accounts.apis.base import ProjectApi, endpoint
from seamlessflow.control_plane.common.files.tar_stream import Member, tar_chunks, tar_size
from seamlessflow.control_plane.common.http.query import Query, WordParameter
from seamlessflow.control_plane.common.http.streaming import in_threads
from seamlessflow.control_plane.jobs.selectors.jobs import job_get_visible
from seamlessflow.control_plane.policies.selectors.export import ExportForm
from seamlessflow.control_plane.policies.selectors.versions import version_export_members
from seamlessflow.core.access.operations import Operation

TAR = "application/x-tar"


def _until_sent(members: list[Member], pins: ExitStack) -> Iterator[bytes]:
    with pins:
        yield from tar_chunks(members)


class ExportQuery(Query):
    form = WordParameter("Form of the export. Default: `model`.", words=ExportForm, default=ExportForm.MODEL)


class JobVersionExportApi(ProjectApi):
    @endpoint(
        "job_version_export", Operation.PROJECT_READ, {(200, TAR): OpenApiTypes.BINARY}, query=ExportQuery
    )
    def get(self, request: Request, job_id: UUID, version: int) -> StreamingHttpResponse:
        """Download a policy version as a tar file.

        The file contains a folder with the full weights (an adapter is merged into them), the configuration and the
        tokenizer. With `form=adapter` it contains only the adapter, in peft's format. If the files of the version were
        deleted, the answer is 410.
        """
        job = job_get_visible(access=self.access, job_id=job_id)
        with ExitStack() as opened:
            members = version_export_members(job=job, version=version, form=self.query["form"], pins=opened)
            pins = opened.pop_all()
        return StreamingHttpResponse(
            in_threads(_until_sent(members, pins)),
            content_type=TAR,
            headers={
                "Content-Length": str(tar_size(members)),
                "Content-Disposition": f'attachment; filename="version-{version}.tar"',
            },
        )
