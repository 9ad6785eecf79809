"""The contents of the artifact store and their names: versions, checkpoints, uploads and exported trajectories."""
