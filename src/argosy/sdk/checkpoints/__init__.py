"""Saves the state of a training, restores it, and hands it from one worker to others.

`manager` decides when; `files` and `sharded` write folders that are whole or absent; `packing` turns state into bytes.
"""
