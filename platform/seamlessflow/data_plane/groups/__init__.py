"""The room of rollout groups: how they begin, which outcomes their sessions get, and how they end."""
