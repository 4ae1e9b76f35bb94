"""Agents that decide how a network grows: a protocol, simple baselines, the published agent, and Argosy's own."""
