"""Which samples a worker trains on, in which order, with which random numbers. All of it follows from the seed."""
