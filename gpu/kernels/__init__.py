"""Triton kernels. Each module has a list of its kernels, `SPECS` (gpu/registry.py)."""
