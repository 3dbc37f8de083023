"""`rmq store`: inspects, dumps and verifies a store directory."""
