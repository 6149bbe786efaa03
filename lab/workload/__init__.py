"""What is sent to an engine and what is read off its answers; shared by benchmark and simulator."""
