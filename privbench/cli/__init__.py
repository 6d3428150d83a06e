"""The command line. Modules here import nothing heavy before a command runs."""
