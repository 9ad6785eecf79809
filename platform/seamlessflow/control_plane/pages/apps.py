"""Django's entry for this app; the label is the folder's name. It has no models."""

from django.apps import AppConfig


class PagesConfig(AppConfig):
    name = "seamlessflow.control_plane.pages"
    label = "pages"
