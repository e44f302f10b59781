"""What a run reports while it goes: meters make the numbers, writers show and record them."""
