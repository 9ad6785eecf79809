"""The arithmetic behind figures: buckets of points, shares of time, windows of logs."""
