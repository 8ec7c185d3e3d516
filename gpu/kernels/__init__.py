"""Triton kernels. Each module has a list `SPECS` (gpu/registry.py) of what it defines."""
