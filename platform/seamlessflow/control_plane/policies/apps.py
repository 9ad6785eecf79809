"""Django's entry for this app; the label is the folder's name."""

from django.apps import AppConfig


class PoliciesConfig(AppConfig):
    name = "seamlessflow.control_plane.policies"
    label = "policies"
    verbose_name = "Policy versions"
