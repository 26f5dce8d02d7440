"""The partial exchange (eager-SGD)."""
