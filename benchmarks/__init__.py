"""Measurements of rmq beside a rival in the same run. See README.md."""
