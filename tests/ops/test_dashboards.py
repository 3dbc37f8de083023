"""The dashboards in `ops/grafana`: Grafana can read them, and every query can have a value."""

from __future__ import annotations

import re
from itertools import combinations
from typing import TYPE_CHECKING, Any, Final

import promql_parser
import pytest

from rmq.cli.generate.grafana.dashboard import COLUMNS
from rmq.cli.generate.grafana.kind import DASHBOARDS
from rmq.cli.generate.grafana.panels import Unit
from tests.ops.exposed import BROKER, CONSTANT, DISKS, FLAGS, KNOWN, NAMESERVER, VALUES
from tests.ops.promql import labels_of, matchers_of, selectors
from tests.ops.queries import ANYTHING, dashboard_queries, dashboards
from tests.paths import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.ops.promql import Matcher
    from tests.ops.queries import DashboardQuery

ALL: Final = {dashboard["uid"]: dashboard for dashboard in dashboards()}
QUERIES: Final = list(dashboard_queries())
KINDS: Final = {"timeseries", "stat", "gauge", "bargauge", "state-timeline", "heatmap", "table"}
VARIABLES: Final = {
    "rocketmq-overview": ["job", "cluster", "broker", "instance", "nameserver"],
    "rocketmq-replication": ["job", "cluster", "broker", "instance"],
    "rocketmq-store": ["job", "cluster", "broker", "instance"],
    "rocketmq-consumers": ["job", "cluster", "broker", "instance", "topic", "group"],
    "rocketmq-clients": ["job", "cluster", "broker", "instance", "topic", "group"],
    "rocketmq-pipelines": ["pipeline", "target"],
}


def panels(dashboard: dict[str, Any]) -> list[dict[str, Any]]:
    return [panel for panel in dashboard["panels"] if panel["type"] != "row"]


@pytest.fixture(params=ALL)
def dashboard(request: pytest.FixtureRequest) -> dict[str, Any]:
    found: dict[str, Any] = ALL[request.param]
    return found


# --- the form -----------------------------------------------------------------------------------


def test_there_are_six_with_the_variables_that_they_are_filtered_by() -> None:
    assert {
        uid: [each["name"] for each in dashboard["templating"]["list"]][1:]
        for uid, dashboard in ALL.items()
    } == VARIABLES
    assert [f"rocketmq-{name}" for name in DASHBOARDS] == list(VARIABLES)


def test_a_dashboard_can_be_provisioned(dashboard: dict[str, Any]) -> None:
    assert (dashboard["id"], dashboard["schemaVersion"]) == (None, 39)
    assert not {"__inputs", "__requires"} & dashboard.keys()
    assert dashboard["title"]
    assert dashboard["description"].endswith(".")
    (menu,) = dashboard["links"]
    assert menu["tags"] == dashboard["tags"] == ["rocketmq"]
    assert menu["includeVars"]
    assert menu["keepTime"]
    source, *variables = dashboard["templating"]["list"]
    assert (source["name"], source["label"], source["type"]) == (
        "datasource",
        "Data source",
        "datasource",
    )
    for variable in variables:
        assert variable["query"]["query"] == variable["definition"]
        assert variable["multi"]
        assert variable["includeAll"]


def test_a_panel_says_what_it_shows_and_in_which_unit(dashboard: dict[str, Any]) -> None:
    for panel in panels(dashboard):
        assert panel["type"] in KINDS
        assert panel["title"]
        assert panel["description"].endswith("."), panel["title"]
        defaults = panel["fieldConfig"]["defaults"]
        assert defaults["unit"] in {unit.value for unit in Unit}
        steps = defaults["thresholds"]["steps"]
        assert steps[0]["value"] is None
        values = [step["value"] for step in steps[1:]]
        assert values == sorted(set(values))
        targets = panel["targets"]
        assert targets
        assert len({target["refId"] for target in targets}) == len(targets)
        sources = [panel["datasource"], *(target["datasource"] for target in targets)]
        assert all(source["uid"] == "${datasource}" for source in sources)


def test_panels_have_numbers_of_their_own_and_fill_their_rows(dashboard: dict[str, Any]) -> None:
    everything = dashboard["panels"]
    assert len({panel["id"] for panel in everything}) == len(everything)
    places = [panel["gridPos"] for panel in everything]
    for one, other in combinations(places, 2):
        beside = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        above = one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
        assert beside or above, (one, other)
    width_of_rows: dict[int, int] = {}
    for place in places:
        width_of_rows[place["y"]] = width_of_rows.get(place["y"], 0) + place["w"]
    assert set(width_of_rows.values()) == {COLUMNS}


def test_titles_of_a_dashboard_differ_but_for_tiles_of_the_same(dashboard: dict[str, Any]) -> None:
    titles = [(panel["title"], panel["type"]) for panel in panels(dashboard)]
    assert len(set(titles)) == len(titles)


def test_states_have_words_and_tables_headings(dashboard: dict[str, Any]) -> None:
    for panel in panels(dashboard):
        defaults = panel["fieldConfig"]["defaults"]
        if panel["type"] == "state-timeline":
            (mapping,) = defaults["mappings"]
            numbers = set(re.findall(r"\* (\d+)", panel["targets"][0]["expr"]))
            assert set(mapping["options"]) == numbers
        if panel["type"] == "table":
            (organized,) = [
                each["options"] for each in panel["transformations"] if each["id"] == "organize"
            ]
            shown = organized["renameByName"].keys() | organized["excludeByName"].keys()
            assert shown == organized["indexByName"].keys() | {"Time"}
            headings = set(organized["renameByName"].values())
            named = {each["matcher"]["options"] for each in panel["fieldConfig"]["overrides"]}
            assert named | {each["displayName"] for each in panel["options"]["sortBy"]} <= headings


def test_links_lead_to_dashboards_that_are_there() -> None:
    links = [
        link["url"]
        for dashboard in ALL.values()
        for panel in panels(dashboard)
        for link in panel.get("links", ())
    ]
    assert links
    assert {re.match(r"/d/([\w-]+)\?", link)[1] for link in links} <= ALL.keys()  # type: ignore[index]


def test_alerts_that_panels_name_exist() -> None:
    rules = "".join(path.read_text() for path in (ROOT / "ops" / "prometheus").glob("*.yml"))
    known = set(re.findall(r"- alert: (\w+)", rules))
    named = [
        found[1]
        for dashboard in ALL.values()
        for panel in panels(dashboard)
        for found in re.finditer(r" Alert: (\w+)\.$", panel["description"])
    ]
    assert len(named) > 15
    assert set(named) <= known


def test_promotions_and_switches_of_the_mode_are_marked() -> None:
    for uid, dashboard in ALL.items():
        names = {note["name"] for note in dashboard["annotations"]["list"]}
        if uid == "rocketmq-pipelines":
            assert names == set()
        else:
            assert {"Promotion", "Demotion", "Mode switch", "New epoch"} == names


# --- the queries --------------------------------------------------------------------------------


def name_of(query: DashboardQuery) -> str:
    return f"{query.dashboard}: {query.panel}: {query.expression}"


def test_every_variable_that_is_used_is_there(dashboard: dict[str, Any]) -> None:
    names = {variable["name"] for variable in dashboard["templating"]["list"]}
    expressions = [target["expr"] for panel in panels(dashboard) for target in panel["targets"]]
    expressions += [note["expr"] for note in dashboard["annotations"]["list"]]
    expressions += [each.get("definition", "") for each in dashboard["templating"]["list"]]
    used = set(re.findall(r"\$(\w+)", " ".join(expressions)))
    assert used - {"__rate_interval"} == names - {"datasource"}


def test_no_query_is_left_with_what_only_grafana_understands() -> None:
    assert len(QUERIES) > 200
    assert [name_of(query) for query in QUERIES if "$" in query.expression] == []


def test_every_query_can_have_a_value_with_the_labels_of_its_legend() -> None:
    wrong = []
    for query in QUERIES:
        try:
            labels = labels_of(promql_parser.parse(query.expression), KNOWN)
            used = set(re.findall(r"\{\{(\w+)\}\}", query.legend))
            assert labels is not None, "a number, and no series"
            assert used <= labels, f"the legend has {used - labels}"
        except (AssertionError, ValueError) as error:
            wrong.append(f"{name_of(query)}: {error}")
    assert wrong == []


def test_tables_have_the_labels_of_their_queries() -> None:
    by_panel: dict[tuple[str, str], frozenset[str]] = {}
    for query in QUERIES:
        labels = labels_of(promql_parser.parse(query.expression), KNOWN) or frozenset()
        key = (query.dashboard, query.panel)
        by_panel[key] = by_panel.get(key, frozenset()) | labels
    tables = 0
    for uid, dashboard in ALL.items():
        for panel in panels(dashboard):
            if panel["type"] == "table":
                tables += 1
                columns = panel["transformations"][1]["options"]["indexByName"]
                shown = {name for name in columns if not name.startswith("Value")}
                assert shown == by_panel[uid, panel["title"]]
    assert tables == 5


def asked() -> Iterator[Matcher]:
    for query in QUERIES:
        for selector in selectors(promql_parser.parse(query.expression)):
            yield from matchers_of(selector, KNOWN)


def test_every_value_of_a_label_that_is_asked_for_exists() -> None:
    checked = set()
    for matcher in asked():
        if matcher.value == ANYTHING:
            continue
        values = VALUES.get((matcher.metric, matcher.label))
        if matcher.label in FLAGS:
            values = frozenset({"true", "false"})
        if matcher.label == "store":
            values = DISKS
        assert values is not None, matcher
        checked.add((matcher.metric, matcher.label))
        parts = matcher.value.split("|") if matcher.is_pattern else [matcher.value]
        for part in parts:
            assert any(re.fullmatch(part, value) for value in values), (matcher, part)
    assert len(checked) > 15


def test_what_brokers_and_nameservers_share_is_asked_of_the_one_that_is_meant() -> None:
    """Without a label of a broker a query would add up what both show."""
    shared = BROKER.keys() & NAMESERVER.keys()
    of_nameservers = {"rocketmq-overview"}
    found = set()
    for query in QUERIES:
        for selector in selectors(promql_parser.parse(query.expression)):
            named = {each.name for each in selector.matchers.matchers}
            if selector.name in shared and not named & CONSTANT:
                found.add(query.dashboard)
                assert "instance" in named or "Errors logged" in query.panel, name_of(query)
    assert found == of_nameservers


@pytest.mark.parametrize(
    ("expression", "why"),
    [
        ("rocketmq_no_such_thing", "no process shows"),
        ('rocketmq_broker_role{rol="slave"}', "has no label rol"),
        ("sum by (queue) (rocketmq_topic_number)", "no label queue to group by"),
        ("rocketmq_ha_in_sync_slaves - rocketmq_broker_role", "finds no pairs"),
        ("rocketmq_topic_number * on (role) rocketmq_broker_role", "not on both sides"),
        ("histogram_quantile(0.9, rocketmq_topic_number)", "needs the label le"),
    ],
)
def test_queries_without_a_value_are_found(expression: str, why: str) -> None:
    with pytest.raises(AssertionError, match=why):
        labels_of(promql_parser.parse(expression), KNOWN)
