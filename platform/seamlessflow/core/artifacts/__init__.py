"""What the artifact store holds, and how it is named: versions, checkpoints, uploads and exported trajectories."""
