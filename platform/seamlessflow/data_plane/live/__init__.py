"""The room of viewers: shows growing answers of groups that somebody watches."""
