"""What several commands share: options, input, output, logging, exit codes, signals."""
