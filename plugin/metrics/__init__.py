"""Numbers of a training: hvd.metrics(), and files for Prometheus."""
