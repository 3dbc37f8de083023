"""The broker: stores messages for producers and hands them to consumers."""
