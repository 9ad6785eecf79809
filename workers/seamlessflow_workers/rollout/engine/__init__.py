"""The embedded engine: continuous batching over a causal language model.

`python -m seamlessflow_workers.rollout.engine --help` starts one. Only `model` imports torch; everything else is plain
Python and numpy, so that a fake model can replace it.
"""
