"""Experiments with growing networks."""
