"""Routes of trajectories under `/api/v1`; the converter `job` is registered by the module that includes this one."""

from django.urls import path, register_converter

from seamlessflow.control_plane.common.http.fields import _IdConverter
from seamlessflow.control_plane.trajectories.apis import (
    GroupDetailApi,
    JobAuditApi,
    JobEvaluationListApi,
    JobGroupListApi,
    SessionDetailApi,
)
from seamlessflow.control_plane.trajectories.forest_apis import (
    GroupForestApi,
    JobVocabularyApi,
    SessionNodeApi,
    SessionTokensApi,
)
from seamlessflow.core.types.ids import IdKind


class GroupIdConverter(_IdConverter):
    kind = IdKind.GROUP


class SessionIdConverter(_IdConverter):
    kind = IdKind.SESSION


register_converter(GroupIdConverter, "group")
register_converter(SessionIdConverter, "session")

urlpatterns = [
    path("jobs/<job:job_id>/groups", JobGroupListApi.as_view()),
    path("jobs/<job:job_id>/evaluations", JobEvaluationListApi.as_view()),
    path("jobs/<job:job_id>/audit", JobAuditApi.as_view()),
    path("groups/<group:group_id>", GroupDetailApi.as_view()),
    path("groups/<group:group_id>/forest", GroupForestApi.as_view()),
    path("sessions/<session:session_id>", SessionDetailApi.as_view()),
    path("sessions/<session:session_id>/nodes/<int:index>", SessionNodeApi.as_view()),
    path("sessions/<session:session_id>/tokens", SessionTokensApi.as_view()),
    path("jobs/<job:job_id>/vocabulary", JobVocabularyApi.as_view()),
]
