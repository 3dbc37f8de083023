"""What each host may have of what is limited, and when it is its turn. Pure."""
