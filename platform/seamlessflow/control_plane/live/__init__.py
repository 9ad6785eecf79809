"""The websocket: snapshots and sequenced deltas."""
