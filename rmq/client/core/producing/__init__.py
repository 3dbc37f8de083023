"""Sends: queue choice, retries, request bodies, and requests with replies."""
