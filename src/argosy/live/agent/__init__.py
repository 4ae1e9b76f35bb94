"""The agent of a node: it runs the workers of a daemon's runs, and kills them when it cannot reach the head."""
