"""Grows a script's network while the job has spare slots, and shrinks it again when they are gone.

The script's own objects are changed in place; the decisions come from the agents of `argosy.grow`.
"""
