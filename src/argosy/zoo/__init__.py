"""Trained weights: those that ship with Argosy, and files of one's own.

A file is safetensors: arrays, and in its header what they are for and how they were made. Nothing is ever unpickled.
"""

from argosy.zoo.weights import Weights, find, names, read, write

__all__ = ["Weights", "find", "names", "read", "write"]
