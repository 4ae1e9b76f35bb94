"""Compiled code of RLTune; importing a module here imports Numba, so it is imported late."""
