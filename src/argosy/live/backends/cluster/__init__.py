"""Runs jobs on other hosts, each of which has an agent."""
