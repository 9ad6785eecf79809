"""The control plane: a Django site that stores desired and observed state and shows it."""
