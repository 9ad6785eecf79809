"""The room of rollout groups: how they begin, what their sessions earned, and how they end."""
