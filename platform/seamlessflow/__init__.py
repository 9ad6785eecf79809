"""SeamlessFlow: a web-managed control plane and data plane for reinforcement learning of large language models."""

__version__ = "0.1.0"
