"""Topics as Parquet with a manifest, each message once."""
