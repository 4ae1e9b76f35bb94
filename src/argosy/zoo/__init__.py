"""Trained weights of learned policies: those shipped with Argosy, and files that users have trained.

A file has the format safetensors: arrays, and a header that says what they are for and how they were made. Nothing is
ever unpickled.
"""

from argosy.zoo.weights import Weights, find, names, read, write

__all__ = ["Weights", "find", "names", "read", "write"]
