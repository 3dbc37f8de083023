"""Registration at the nameservers."""
