"""The result: what propagation decided as a plan, with its log and its warnings."""
