"""How long data is kept: the policy, and the plan of deletions."""
