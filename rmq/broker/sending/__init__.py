"""The way of a message from its request to the store, and when the request is answered."""
