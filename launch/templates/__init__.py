"""Job files for schedulers: the job description, a folder for each scheduler, and the command that writes files."""
