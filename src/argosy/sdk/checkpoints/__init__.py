"""Saves the state of the training, restores it, and sends it from one worker to others.

`manager` decides when; `files` and `sharded` write folders atomically; `packing` converts state to bytes.
"""
