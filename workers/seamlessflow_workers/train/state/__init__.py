"""The state of a trainer in memory and in checkpoints: trained parameters and their optimizer's moments."""
