"""Self-contained pages: plots as SVG, light and dark, from values. Pure."""
