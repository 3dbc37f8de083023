"""Changes of roles that operators order, and repair of a slave's log."""
