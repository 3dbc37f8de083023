"""A read-only view of a store directory, without trio; `Reader` is what others use."""

from rmq.store.reader.reader import Reader, has_key

__all__ = ["Reader", "has_key"]
