#!/usr/bin/env python
"""Django's command line for a source checkout: puts the import roots on the path and names the settings."""

import os
import sys
from pathlib import Path

ROOT = Path(__file__).parent


def main() -> None:
    sys.path[:0] = [str(ROOT / "platform"), str(ROOT / "workers")]
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "seamlessflow.control_plane.settings")
    from django.core.management import execute_from_command_line

    execute_from_command_line(sys.argv)


if __name__ == "__main__":
    main()
