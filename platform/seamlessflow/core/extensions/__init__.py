"""What third parties add to the platform without a fork: declarations, the registry, the checks of a spec."""
