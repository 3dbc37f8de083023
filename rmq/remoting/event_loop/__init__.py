"""How late the event loop of a server runs what is due: counted, and measured always."""
