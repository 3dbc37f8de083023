"""Traffic, lag and skew."""
