"""A slave's log against its master's, by bytes and then by records."""
