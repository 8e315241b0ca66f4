"""The rules of one loop, each a function of it. None knows the table of transitions or the tree."""
