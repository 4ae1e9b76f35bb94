"""Learning to schedule: environments around the simulator's engine, algorithms, and the training of policies."""
