"""Organisations, projects and keys: what can be done with them, and the trace that it leaves.

The command line, the administration API and the dashboard all come through here, so that no act
can forget its entry in the audit log.
"""
