"""SeamlessFlow: a web-managed control plane and data plane for reinforcement learning of large language models."""
