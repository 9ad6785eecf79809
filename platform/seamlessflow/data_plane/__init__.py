"""The data plane: the gateway between agents, engines and trainers."""
