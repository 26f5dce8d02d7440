"""Job files for schedulers: what the user asks for (job), each scheduler's own folder, and the command that writes."""
