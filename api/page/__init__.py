"""The server's page: files of a small front end, and the description of the API as a page."""
