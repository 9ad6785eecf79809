"""Addresses of the browser application: everything below these words. No other address has a page."""

from django.urls import path, re_path

from seamlessflow.control_plane.dashboard import views

app_name = "dashboard"
urlpatterns = [
    path("signout", views.sign_out, name="sign_out"),
    re_path(
        r"^$|^(?:jobs|queue|shares|groups|sessions|machines|tokens|members|storage)(?:/.*)?$",
        views.application,
        name="application",
    ),
]
