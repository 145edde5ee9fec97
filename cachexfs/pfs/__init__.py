"""The shared file system: reading it, and bringing captured files there whole and in order."""
