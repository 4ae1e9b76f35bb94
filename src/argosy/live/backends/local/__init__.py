"""The local backend: it runs jobs on this machine, with one supervisor process for each run and a pool of zygotes."""
