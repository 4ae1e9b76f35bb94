"""The supervisor of a run whose workers are on other hosts: it speaks with one agent for each node."""
