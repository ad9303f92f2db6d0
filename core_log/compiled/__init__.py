"""Code compiled by numba, the cache of its machine code, and its buffers."""
