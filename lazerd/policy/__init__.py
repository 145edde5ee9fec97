"""Who goes first, who goes, and when: pure code."""
