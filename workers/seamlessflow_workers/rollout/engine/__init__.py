"""The embedded engine: continuous batching over a causal language model behind vLLM's HTTP surface.

`python -m seamlessflow_workers.rollout.engine --help` starts one. Only `dense_runner`, `generic_runner`, `sampling`
and `weights` know torch; everything else is plain Python and numpy, so that a fake model can stand in their place.
"""
