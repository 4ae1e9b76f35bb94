"""Compiled parts of the learned policies; they are imported late, because they need Numba."""
