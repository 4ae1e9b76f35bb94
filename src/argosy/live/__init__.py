"""Argosy on a live cluster: the daemon, the backends that run jobs, and the SDK inside them."""
