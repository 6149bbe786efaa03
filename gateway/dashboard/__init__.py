"""The operator's pages at /admin: server-rendered, live by one event stream per page.

`app.make_dashboard` builds the sub-application; `pages` and `events` read the same fragments.
"""
