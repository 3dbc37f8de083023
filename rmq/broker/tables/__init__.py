"""Tables of a broker that are saved as small files: topics, groups, consumer offsets."""
