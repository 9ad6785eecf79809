"""HTTP clients by which children of a supervisor speak to the gateway and the control plane."""
