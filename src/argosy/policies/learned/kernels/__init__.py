"""Compiled parts of policies; imported late, because they need Numba."""
