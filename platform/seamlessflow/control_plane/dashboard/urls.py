"""Addresses of the browser application."""

from django.urls import path

from seamlessflow.control_plane.dashboard import views

app_name = "dashboard"
urlpatterns = [
    path("signout", views.sign_out, name="sign_out"),
    path("next/", views.application, name="application"),
    path("next/<path:path>", views.application),
]
