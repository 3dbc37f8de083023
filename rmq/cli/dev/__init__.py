"""`rmq dev`: a nameserver, a master and its slave on this machine, with a self-check."""
