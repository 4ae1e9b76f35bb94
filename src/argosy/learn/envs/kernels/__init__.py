"""Compiled parts of the environments, which build observations and masks; imported late, since they need Numba."""
