"""Layer 4: a plan as a page to read: one self-contained HTML file. Never prints, never plans."""
