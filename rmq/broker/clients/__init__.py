"""Connected producers and consumers: who they are, their locks, and calls to them."""
