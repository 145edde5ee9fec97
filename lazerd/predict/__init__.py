"""What is likely to happen, from what has happened: pure code."""
