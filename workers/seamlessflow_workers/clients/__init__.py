"""HTTP clients through which a supervisor's children talk to the gateway and the control plane."""
