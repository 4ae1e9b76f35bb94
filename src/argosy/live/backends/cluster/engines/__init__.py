"""Engines start, watch and end the agents of a cluster's nodes, and do nothing else: Slurm, Ray."""
