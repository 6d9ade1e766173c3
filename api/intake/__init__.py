"""Intake: untrusted input is scanned and bounded, and read by a child that confines itself."""
