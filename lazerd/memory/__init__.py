"""What outlives the daemon: the store, what is known of jobs and nodes, and the way back."""
