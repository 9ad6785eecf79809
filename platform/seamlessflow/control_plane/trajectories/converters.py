"""Path converters of groups and sessions: what is no identifier of the kind matches no route, hence 404."""

from seamlessflow.control_plane.common.http.fields import _IdConverter
from seamlessflow.core.types.ids import IdKind


class GroupIdConverter(_IdConverter):
    kind = IdKind.GROUP


class SessionIdConverter(_IdConverter):
    kind = IdKind.SESSION
