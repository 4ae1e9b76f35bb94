"""Compiled code of Pollux: whole populations of allocations, tables of speed-ups, fits of the throughput model."""
