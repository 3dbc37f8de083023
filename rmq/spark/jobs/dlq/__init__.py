"""Dead letters: told apart, and sent again."""
