"""Which messages a pull gets, and pulls that wait for new ones."""
