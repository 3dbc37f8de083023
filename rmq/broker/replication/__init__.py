"""The role of a broker, changes of it, and what a slave copies besides the log."""
