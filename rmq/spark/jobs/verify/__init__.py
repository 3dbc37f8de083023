"""A store checked in parallel."""
