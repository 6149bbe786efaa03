"""The Celery side of the batch service: the app, five-line tasks, the schedule, the drain."""
