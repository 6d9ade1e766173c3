"""Planning over HTTP: requests and jobs, known targets, the one way to a plan, its provenance, what-if."""
