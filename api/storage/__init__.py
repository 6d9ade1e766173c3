"""Storage: files by digest, rows of the database, uploads, retention."""
