"""Jobs that operators run: one module each, a verdict at the end."""
