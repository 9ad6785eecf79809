"""Rules of thumb about the memory of a GPU. Imports nothing, so that every process may read them."""

# What CUDA's context and libraries take in each process, beside what its allocators count.
CONTEXT_BYTES = 512 * 2**20
# The share of an otherwise empty GPU that vLLM fills by default: the rest is for what it does not count itself.
USUAL_SHARE = 0.9
