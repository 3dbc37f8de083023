"""What is counted on hot paths, in plain numbers: metrics read it when they are asked."""
