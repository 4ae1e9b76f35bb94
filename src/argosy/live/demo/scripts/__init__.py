"""The training scripts of the demonstration; each is run as a program of its own."""
