"""Intake: what strangers send is scanned, confined and read in a child process."""
