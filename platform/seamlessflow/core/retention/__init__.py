"""What is kept, and for how long: the policy, and the plan of what to delete."""
