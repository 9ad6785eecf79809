"""The model of the embedded engine, on torch: loading, forward passes, KV cache and sampling."""
