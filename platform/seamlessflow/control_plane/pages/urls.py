"""Pages: jobs, a job, machines, a group, a session. The converters come with the API's routes, included earlier."""

from django.urls import path

from seamlessflow.control_plane.pages import views

app_name = "pages"
urlpatterns = [
    path("", views.job_list, name="job_list"),
    path("jobs/<job:job_id>", views.job_detail, name="job_detail"),
    path("machines", views.machine_list, name="machine_list"),
    path("groups/<group:group_id>", views.group_detail, name="group_detail"),
    path("sessions/<session:session_id>", views.session_detail, name="session_detail"),
    path("signin", views.sign_in_help, name="sign_in_help"),
]
