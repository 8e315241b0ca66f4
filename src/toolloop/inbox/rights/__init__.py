"""What one person may see and do in an inbox, by the functions of the application.

Not here: names and groups, which the application gives; and how many approvals a call needs.
"""
