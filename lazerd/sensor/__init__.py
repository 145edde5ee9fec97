"""Looks at GPUs: has a job begun to work, which GPUs are empty, which are lost. Decides nothing."""
