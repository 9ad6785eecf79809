"""Routes of trajectories under `/api/v1`; their converters are registered by the module that includes this one."""

from django.urls import path

from seamlessflow.control_plane.trajectories.apis.forests import (
    GroupForestApi,
    JobVocabularyApi,
    SessionNodeApi,
    SessionTokensApi,
)
from seamlessflow.control_plane.trajectories.apis.sessions import (
    GroupDetailApi,
    JobAuditApi,
    JobEvaluationListApi,
    JobGroupListApi,
    SessionDetailApi,
)

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
