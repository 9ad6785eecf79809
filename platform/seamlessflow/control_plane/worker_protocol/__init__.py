"""What supervisors and their children ask of the control plane: joining, heartbeats, publications, metrics, logs."""
