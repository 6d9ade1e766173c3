"""Re-verify rows: that the one which serves a kernel fits it, and is to be preferred to the others."""
