"""Counters of a broker and its store, as `mqadmin` shows them."""
