"""The artifact store: where versions, checkpoints, uploads and exports are, and this host's copies of them."""
