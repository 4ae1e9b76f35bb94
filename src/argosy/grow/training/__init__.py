"""Training that grows and shrinks a network as GPUs come and go."""
