"""What the pipelines do: a folder for each, and what several of them share here."""
