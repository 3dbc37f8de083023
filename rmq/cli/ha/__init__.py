"""`rmq ha`: shows, changes and verifies the replication of a broker name."""
