"""Valid/ready plumbing shared by all accelerators."""
