"""What becomes of a message between its request and the store, and when it is answered."""
