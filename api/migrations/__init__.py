"""Migrations: how each version of the tables follows from the one before; run when a server starts."""
