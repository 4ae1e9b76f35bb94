"""Combines the gradients of all workers: by an all-reduce or, in exact mode, with bitwise reproducible sums.

It also measures the gradient noise scale and scales learning rates when the batch grows.
"""
