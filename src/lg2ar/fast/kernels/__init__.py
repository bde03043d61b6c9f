"""Triton kernels of the captured step; every one treats all runs and views of a batch at once."""
