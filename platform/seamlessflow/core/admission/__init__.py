"""How far rollout runs ahead of training: the measurements of a job's last batches, and the rule that reads them."""
