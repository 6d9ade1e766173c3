"""Planning over HTTP: requests, the known targets, the pipeline, what-if."""
