"""How far rollout runs ahead of training: what is measured of a job's last batches, and the rule that reads it."""
