"""Bodies of requests and responses, with examples, for checking and for OpenAPI."""
