"""Admin calls, one flow each, by subject; `catalogue` has all of them."""
