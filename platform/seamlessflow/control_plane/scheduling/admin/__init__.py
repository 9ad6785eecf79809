"""The pages of this app in the admin site; Django imports this package to find them."""

from seamlessflow.control_plane.scheduling.admin import machines as machines
from seamlessflow.control_plane.scheduling.admin import phases as phases
