"""Thin callbacks for other people's training loops: reports, checkpoints, suspension. Resizing is a restart."""
