"""Messages that are there twice, and those that are missing."""
