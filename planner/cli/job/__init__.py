"""The job of `plan` and `quantize`: what is asked, what is made of it, and how it is said."""
