"""The pages of this app in the admin site; Django imports this package to find them."""

from seamlessflow.control_plane.accounts.admin import people as people
