"""The arithmetic behind figures: buckets of points, fractions of time, windows of logs."""
