"""What a caller gives to a loop and gets from it, and the checks at that door. Knows no journal."""
