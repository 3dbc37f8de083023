"""Delivery of delayed messages, and its progress on disk."""
