"""Admin calls, one flow each, by subject; `flows` lists all of them."""
