"""Moments as logs and the dashboard have them: a day's clock of 24 hours, with seconds."""

DATE_FORMAT = "j M Y"
TIME_FORMAT = "H:i:s"
DATETIME_FORMAT = "j M Y, H:i:s"
