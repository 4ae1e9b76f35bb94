"""Change a network without changing what it computes."""
