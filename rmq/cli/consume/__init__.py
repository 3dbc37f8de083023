"""`rmq consume`: prints the messages of a topic."""
