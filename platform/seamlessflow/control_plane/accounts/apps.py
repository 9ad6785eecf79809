"""Django's entry for this app; the label is the folder's name."""

from django.apps import AppConfig


class AccountsConfig(AppConfig):
    name = "seamlessflow.control_plane.accounts"
    label = "accounts"
    verbose_name = "People and projects"

    def ready(self) -> None:
        # Importing it registers the scheme with drf-spectacular.
        from seamlessflow.control_plane.accounts.apis import schema  # noqa: F401
