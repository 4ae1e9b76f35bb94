"""Callbacks for Lightning and Hugging Face, with which a job reports, saves and suspends; a restart resizes it."""
