"""What a run folder says about its run."""
