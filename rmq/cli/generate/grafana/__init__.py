"""`rmq generate grafana`: the dashboards for Grafana, described once and written as JSON.

    panels       what a dashboard can show: lines, tiles, tables and the rest
    dashboard    a dashboard: sections of rows of panels, variables, annotations
    queries      the selectors and sums that the queries are made of
    shared       variables, annotations and levels that several dashboards have
    rendering    a dashboard as Grafana 10.4 and later read it
    kind         the files

One module more for each dashboard. `tests/ops` compares their queries with what is exported.
"""
