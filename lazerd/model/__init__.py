"""The vocabulary of Lazer: jobs, the cluster, events, actions, reasons. Pure code."""
