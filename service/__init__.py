"""What every process needs: clock, broker, secrets, logs, traces. Imports nothing of ours."""
