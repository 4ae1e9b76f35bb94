"""The local backend: nodes of this machine, one supervisor process for each run, and a pool of warm interpreters."""
