"""A caller-driven, resumable tool loop for the Messages API of Claude."""
