"""How much memory of a device a model needs, in each role, estimated from its shape and the job's spec."""
