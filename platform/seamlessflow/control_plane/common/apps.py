"""Django's entry for this app; the label is the folder's name."""

from django.apps import AppConfig
from django.db.models.signals import post_migrate


class CommonConfig(AppConfig):
    name = "seamlessflow.control_plane.common"
    label = "common"
    verbose_name = "Record"

    def ready(self) -> None:
        # Models may be imported only now.
        from seamlessflow.control_plane.common.database.gateway_role import gateway_role_grant

        post_migrate.connect(gateway_role_grant, sender=self, dispatch_uid="gateway role")
