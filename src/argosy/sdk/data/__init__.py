"""Decides which samples a worker trains on, in which order and with which random numbers, all from the seed."""
