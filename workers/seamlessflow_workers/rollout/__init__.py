"""Rollout: engines, and the door through which gateways reach each of them."""
