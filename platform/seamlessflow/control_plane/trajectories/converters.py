"""Path converters of groups and sessions. A text that is no such identifier matches no route, which gives 404."""

from seamlessflow.control_plane.common.http.fields import _IdConverter
from seamlessflow.core.types.ids import IdKind


class GroupIdConverter(_IdConverter):
    kind = IdKind.GROUP


class SessionIdConverter(_IdConverter):
    kind = IdKind.SESSION
