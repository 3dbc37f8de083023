"""What metrics cost: counting, scraping, and a scrape of many topics and groups."""
