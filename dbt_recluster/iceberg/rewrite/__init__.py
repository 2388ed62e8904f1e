"""From file groups to new files: sample, split points, ranges or a shuffle, staging, writing, verification."""
