"""Formats of moments, as in logs and the dashboard: a clock of 24 hours, with seconds."""

DATE_FORMAT = "j M Y"
TIME_FORMAT = "H:i:s"
DATETIME_FORMAT = "j M Y, H:i:s"
