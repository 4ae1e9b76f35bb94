"""Learning to schedule: environments around the simulator's own engine."""
