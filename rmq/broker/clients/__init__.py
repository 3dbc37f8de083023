"""Connected producers and consumers: their groups, their locks, and calls to them."""
