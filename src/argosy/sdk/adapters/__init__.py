"""Callbacks for Lightning and Hugging Face: they report, save and suspend. Such jobs are resized by a restart."""
