"""The cluster key: its items and their transforms, the columns below them, and the curve of `hilbert`."""
