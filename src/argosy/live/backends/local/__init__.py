"""Processes on this machine: one supervisor for each run, workers forked from warm interpreters."""
