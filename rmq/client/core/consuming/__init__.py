"""Consumption: settings, pulls, buffers, allocation, offsets and redelivery."""
