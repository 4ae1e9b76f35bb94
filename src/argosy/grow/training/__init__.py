"""Training that grows a network when GPUs come, and shrinks it when they are taken back."""
