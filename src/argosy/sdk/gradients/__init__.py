"""Combines the gradients of all workers, by an all-reduce or bit for bit in a fixed order (exact mode).

The noise scale of the gradients and the learning rate for a scaled batch are here too.
"""
