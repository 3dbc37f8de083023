"""When disks are full, and which groups lose unread messages."""
