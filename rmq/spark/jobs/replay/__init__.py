"""Archives and tables into topics, with proof."""
