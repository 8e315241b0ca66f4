"""What a function asks for: its signature, its JSON Schema, and arguments made of a call's input."""
