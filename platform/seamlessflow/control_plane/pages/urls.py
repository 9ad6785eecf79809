"""Pages: `/` (jobs), `/jobs/<id>`, `/machines`, `/sessions/<id>`, `/signin`."""

from django.urls import URLPattern

app_name = "pages"
urlpatterns: list[URLPattern] = []
