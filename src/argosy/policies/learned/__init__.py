"""Policies that decide with a trained network: importing this package registers them."""

from argosy.policies.learned import argonaut, dl2, dl2_plus

__all__ = ["argonaut", "dl2", "dl2_plus"]
