"""Policies that decide with a trained network: importing this package registers them."""

from argosy.policies.learned import dl2, dl2_plus

__all__ = ["dl2", "dl2_plus"]
