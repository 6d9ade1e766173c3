"""The server: processes, connections, limits, logs and metrics around the routes."""
