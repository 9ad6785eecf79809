"""Routes of `/api/v1`."""

from django.urls import include, path, register_converter
from drf_spectacular.views import SpectacularAPIView, SpectacularSwaggerSplitView

from seamlessflow.control_plane.accounts.apis import members
from seamlessflow.control_plane.accounts.apis import tokens as accounts
from seamlessflow.control_plane.cluster.apis import machines as cluster
from seamlessflow.control_plane.cluster.apis import pools
from seamlessflow.control_plane.common.http import fields
from seamlessflow.control_plane.jobs.apis import extensions, jobs
from seamlessflow.control_plane.policies import apis as policies
from seamlessflow.control_plane.scheduling.apis import previews as scheduling
from seamlessflow.control_plane.scheduling.apis import queue as queues
from seamlessflow.control_plane.scheduling.apis import shares
from seamlessflow.control_plane.storage.apis import storage
from seamlessflow.control_plane.telemetry.apis import metrics, session_logs, summaries
from seamlessflow.control_plane.uploads import apis as uploads

register_converter(fields.GroupIdConverter, "group")
register_converter(fields.JobIdConverter, "job")
register_converter(fields.MachineIdConverter, "machine")
register_converter(fields.PhaseIdConverter, "phase")
register_converter(fields.SessionIdConverter, "session")
register_converter(fields.TokenIdConverter, "token")

urlpatterns = [
    path("jobs", jobs.JobListSubmitApi.as_view()),
    path("jobs/<job:job_id>", jobs.JobDetailApi.as_view()),
    path("jobs/<job:job_id>/cancel", jobs.JobCancelApi.as_view()),
    path("jobs/<job:job_id>/pause", jobs.JobPauseApi.as_view()),
    path("jobs/<job:job_id>/stage", jobs.JobStageApi.as_view()),
    path("jobs/<job:job_id>/resume", jobs.JobResumeApi.as_view()),
    path("jobs/<job:job_id>/versions", jobs.JobVersionListApi.as_view()),
    path("jobs/<job:job_id>/versions/<int:version>/export", policies.JobVersionExportApi.as_view()),
    path("jobs/<job:job_id>/metrics", metrics.JobMetricsApi.as_view()),
    path("jobs/<job:job_id>/events", jobs.JobEventListApi.as_view()),
    path("jobs/<job:job_id>/phases", jobs.JobPhaseListApi.as_view()),
    path("jobs/<job:job_id>/summary", summaries.JobSummaryApi.as_view()),
    path("jobs/<job:job_id>/ledger", cluster.JobLedgerApi.as_view()),
    path("queue", queues.QueueApi.as_view()),
    path("extensions", extensions.ExtensionListApi.as_view()),
    path("machines", cluster.MachineListRegisterApi.as_view()),
    path("machines/<machine:machine_id>", cluster.MachineDetailApi.as_view()),
    path("machines/ledger", cluster.MachineLedgerListApi.as_view()),
    path("machines/preview", scheduling.MachinesPreviewApi.as_view()),
    path("machines/<machine:machine_id>/preview", scheduling.MachinePreviewApi.as_view()),
    path("machines/<machine:machine_id>/release", scheduling.MachineReleaseApi.as_view()),
    path("machines/<machine:machine_id>/events", cluster.MachineEventListApi.as_view()),
    path("machines/<machine:machine_id>/ledger", cluster.MachineLedgerApi.as_view()),
    path("pools", pools.PoolListApi.as_view()),
    path("pools/<slug:pool>/grants/<slug:slug>", pools.PoolGrantApi.as_view()),
    path("shares", shares.ShareListApi.as_view()),
    path("shares/<slug:slug>", shares.ShareEditApi.as_view()),
    path("phases/<phase:phase_id>/logs", cluster.PhaseLogsApi.as_view()),
    path("sessions/<session:session_id>/logs", session_logs.SessionLogsApi.as_view()),
    path("uploads", uploads.UploadApi.as_view()),
    path("jobs/<job:job_id>/trajectories/<str:table>", storage.JobTrajectoriesApi.as_view()),
    path("storage", storage.StorageApi.as_view()),
    path("storage/jobs", storage.StorageJobsApi.as_view()),
    path("storage/jobs/<job:job_id>", storage.StoredJobApi.as_view()),
    path("storage/uploads", storage.StorageUploadsApi.as_view()),
    path("storage/policy", storage.StoragePolicyApi.as_view()),
    path("storage/plan", storage.StoragePlanApi.as_view()),
    path("storage/deletions", storage.StorageDeletionsApi.as_view()),
    path("projects/<slug:slug>/members", members.MemberListAddApi.as_view()),
    path("projects/<slug:slug>/members/<str:username>", members.MemberDetailApi.as_view()),
    path("me", accounts.MeApi.as_view()),
    path("tokens", accounts.TokenListCreateApi.as_view()),
    path("tokens/<token:token_id>", accounts.TokenRevokeApi.as_view()),
    path("", include("seamlessflow.control_plane.trajectories.urls")),
    path("schema", SpectacularAPIView.as_view(), name="schema"),
    path("schema/ui", SpectacularSwaggerSplitView.as_view(url_name="schema")),
]
