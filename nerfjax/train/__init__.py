"""Training: from a config to a sealed run folder."""
