"""The report page in a real browser: headless Chromium, driven by Selenium."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from lg2ar.data.columns import Column
from lg2ar.data.dataset import Dataset
from lg2ar.data.toy import toy_graphs, toy_nodes
from lg2ar.experiment import pretrain
from lg2ar.graph import GraphBatch
from lg2ar.report.page import write_report

webdriver = pytest.importorskip(
    "selenium.webdriver", reason="Selenium, which drives the browser, is not installed"
)
select = pytest.importorskip("selenium.webdriver.support.select")

EVIL = "</script><script>window.hacked = 1</script><img src=x onerror='hacked = 1'>"
FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    binary = shutil.which("chromium") or shutil.which("chromium-browser")
    driver = shutil.which("chromedriver")
    if binary is None or driver is None:
        pytest.skip("chromium and chromedriver, in which the page is looked at, are not installed")
    options = webdriver.ChromeOptions()
    options.binary_location = binary
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    found = webdriver.Chrome(
        options=options, service=webdriver.ChromeService(executable_path=driver)
    )
    found.set_script_timeout(20)
    yield found
    found.quit()


def hostile() -> Dataset:
    """Graphs whose names, labels, columns and categories would like to be scripts."""
    data = toy_graphs(40)
    kinds = data.graph.x.argmax(1).tolist()
    return replace(
        data,
        name=f"mine {EVIL}",
        graph=data.graph.replace(x=torch.empty(data.graph.num_nodes, 0)),
        ids=tuple(f"g{k} {EVIL}" for k in range(40)),
        classes=("no", "yes", EVIL, "perhaps"),
        targets={
            EVIL: np.array([EVIL, "plain"] * 20, dtype=object),
            "weight": np.linspace(0, 9, 40),
        },
        node_columns=(Column.categories(EVIL, [f"{EVIL}{k}" for k in kinds]),),
    )


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    data = hostile()
    pretrain(data, {"hidden": 8, "layers": 2, "epochs": 3}, out=folder / "run", device="cpu")
    return write_report(folder / "run", data, out=folder / "page.html", command=["lg2ar", EVIL])


@pytest.fixture
def opened(browser: Any, page: Path) -> Any:
    return open_page(browser, page)


def open_page(
    browser: Any, page: Path, width: int = 1280, height: int = 900, scheme: str = "light"
) -> Any:
    screen = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
    touch = {"enabled": width < 500}
    browser.execute_cdp_cmd("Emulation.setTouchEmulationEnabled", touch)
    wishes = [
        {"name": "prefers-color-scheme", "value": scheme},
        {"name": "prefers-reduced-motion", "value": "reduce"},
    ]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": wishes})
    for kind in ("browser", "performance"):
        browser.get_log(kind)  # what was said before does not count
    browser.get(page.resolve().as_uri())
    return browser


def element(opened: Any, name: str) -> Any:
    return opened.find_element("id", name)


def shown(opened: Any, name: str) -> bool:
    return bool(element(opened, name).is_displayed())


def into_view(opened: Any, item: Any) -> None:
    """Scroll there, and wait until the page has heard that it was scrolled."""
    opened.execute_async_script(
        "arguments[0].scrollIntoView({block: 'center'});"
        "requestAnimationFrame(() => requestAnimationFrame(arguments[1]))",
        item,
    )


def pointer(opened: Any, point: int) -> Any:
    """Actions that begin by moving the pointer to a point of the map."""
    canvas = element(opened, "canvas")
    into_view(opened, canvas)
    x, y = opened.execute_script("return arguments[0].whereIs(arguments[1])", canvas, point)
    size = canvas.size
    across, down = round(x - size["width"] / 2), round(y - size["height"] / 2)
    actions = webdriver.ActionChains(opened, duration=50)
    return actions.move_to_element_with_offset(canvas, across, down)


def colour_by(opened: Any, place: int) -> None:
    """Choose a column: the label, two of the data's own, then the sizes."""
    select.Select(element(opened, "colour-by")).select_by_index(place)


def zoom(opened: Any) -> float:
    return float(element(opened, "canvas").get_attribute("data-zoom"))


def pixels(opened: Any) -> str:
    """What the map looks like."""
    return str(opened.execute_script("return document.getElementById('canvas').toDataURL()"))


def complaints(opened: Any) -> list[str]:
    return [str(entry["message"]) for entry in opened.get_log("browser")]


def test_page_opens_without_complaint_and_asks_nobody(opened: Any, page: Path) -> None:
    assert shown(opened, "canvas")
    assert complaints(opened) == []
    events = [json.loads(entry["message"])["message"] for entry in opened.get_log("performance")]
    asked = {
        event["params"]["request"]["url"]
        for event in events
        if event["method"] == "Network.requestWillBeSent"
    }
    assert asked == {page.resolve().as_uri()}


def test_nothing_from_the_data_becomes_code(opened: Any) -> None:
    assert opened.execute_script("return window.hacked") is None
    assert opened.find_elements("tag name", "img") == []
    assert len(opened.find_elements("tag name", "script")) == 2  # ours, and the map's data
    assert EVIL in opened.find_element("tag name", "h1").text
    told = element(opened, "chosen").text
    assert f"graph g0 {EVIL}"[:80] in told
    assert EVIL[:60] in told  # the column's name and the neighbours' labels
    colour_by(opened, 1)
    assert EVIL[:60] in element(opened, "atlas-legend").text
    pointer(opened, 2).perform()
    assert EVIL[:60] in element(opened, "card").text
    assert opened.execute_script("return window.hacked") is None
    assert complaints(opened) == []


def test_pointing_at_a_point_shows_its_graph(opened: Any) -> None:
    assert not shown(opened, "card")
    pointer(opened, 7).perform()
    card = element(opened, "card")
    over = int(opened.execute_script("return document.getElementById('canvas').dataset.over"))
    assert card.is_displayed()
    assert f"graph g{over} " in card.text  # number 7, unless another lies on top of it
    data = hostile().graph
    nodes = card.find_elements("css selector", "circle.node")
    assert len(nodes) == int(data.sizes[over])
    assert card.find_element("css selector", "path.edge").get_attribute("d").count("L") == (
        int((data.batch[data.edge_index[0]] == over).sum()) // 2
    )
    box = card.rect
    assert box["width"] > 150
    webdriver.ActionChains(opened).move_to_element(element(opened, "find")).perform()
    assert not shown(opened, "card")


def test_clicking_shows_the_nearest_neighbours(opened: Any) -> None:
    held = json.loads(element(opened, "atlas-data").get_attribute("textContent"))
    pointer(opened, 11).click().perform()
    picked = int(opened.execute_script("return document.getElementById('canvas').dataset.picked"))
    chosen = element(opened, "chosen")
    assert f"graph g{picked} " in chosen.find_element("tag name", "h3").text
    near = chosen.find_elements("css selector", ".near button")
    assert [button.find_element("tag name", "span").text.split()[0] for button in near] == [
        f"g{other}" for other in held["neighbours"][picked]
    ]
    assert all(button.find_elements("css selector", "circle.node") for button in near)
    near[0].click()
    first = held["neighbours"][picked][0]
    assert f"graph g{first} " in element(opened, "chosen").find_element("tag name", "h3").text


def test_map_zooms_and_moves(opened: Any) -> None:
    whole = pixels(opened)
    element(opened, "zoom-in").click()
    assert zoom(opened) == pytest.approx(1.6)
    near = pixels(opened)
    assert near != whole
    pointer(opened, 3).click().perform()  # the wheel zooms once the map has the focus
    canvas = element(opened, "canvas")
    origin = webdriver.common.actions.wheel_input.ScrollOrigin.from_element(canvas)
    webdriver.ActionChains(opened).scroll_from_origin(origin, 0, -300).perform()
    assert zoom(opened) > 2
    before = pixels(opened)
    webdriver.ActionChains(opened).drag_and_drop_by_offset(canvas, 60, 30).perform()
    assert pixels(opened) != before
    element(opened, "zoom-reset").click()
    assert zoom(opened) == 1
    canvas.send_keys("+")
    assert zoom(opened) == pytest.approx(1.6)
    canvas.send_keys("0")
    assert zoom(opened) == 1


def test_wheel_scrolls_the_page_where_the_map_has_no_focus(opened: Any) -> None:
    canvas = element(opened, "canvas")
    into_view(opened, canvas)
    origin = webdriver.common.actions.wheel_input.ScrollOrigin.from_element(canvas)
    webdriver.ActionChains(opened).scroll_from_origin(origin, 0, 200).perform()
    assert zoom(opened) == 1


def test_arrow_keys_go_from_point_to_point(opened: Any) -> None:
    canvas = element(opened, "canvas")
    titles = []
    for key in ("ARROW_RIGHT", "ARROW_LEFT", "ARROW_UP", "ARROW_DOWN"):
        canvas.send_keys(getattr(webdriver.Keys, key))
        titles.append(element(opened, "chosen").find_element("tag name", "h3").text)
    assert len(set(titles)) > 1


def test_colours_follow_the_chosen_column(opened: Any) -> None:
    legend = element(opened, "atlas-legend")
    assert [item.text for item in legend.find_elements("tag name", "li")] == [
        "● label " + EVIL.strip(),
        "■ label no",
        "◆ label perhaps",
        "▲ label yes",
    ]
    before = pixels(opened)
    colour_by(opened, 2)
    assert legend.text.split() == ["weight", "0", "9"]
    assert pixels(opened) != before
    colour_by(opened, 0)
    assert pixels(opened) == before
    legend.find_elements("tag name", "button")[1].click()  # hides the points of a label
    assert pixels(opened) != before
    legend.find_elements("tag name", "button")[1].click()
    assert pixels(opened) == before


def test_maps_of_both_encoders_and_layouts(opened: Any) -> None:
    seen = {pixels(opened)}
    for group, place in (("layouts", 1), ("encoders", 1), ("layouts", 0)):
        element(opened, group).find_elements("tag name", "span")[place].click()
        seen.add(pixels(opened))
    assert len(seen) == 4


def test_an_id_is_found(opened: Any) -> None:
    element(opened, "find").send_keys("g23")
    assert "graph g23 " in element(opened, "chosen").find_element("tag name", "h3").text


def test_theme_follows_the_system_and_the_switch(browser: Any, page: Path) -> None:
    def background(opened: Any) -> str:
        return str(opened.execute_script("return getComputedStyle(document.body).backgroundColor"))

    opened = open_page(browser, page)
    light, drawn = background(opened), pixels(opened)
    element(opened, "theme").click()
    dark = background(opened)
    assert dark != light
    assert pixels(opened) != drawn
    assert element(opened, "theme").get_attribute("aria-label") == "Switch to light colours"
    element(opened, "theme").click()
    assert background(opened) == light
    opened = open_page(browser, page, scheme="dark")
    assert background(opened) == dark
    element(opened, "theme").click()
    assert background(opened) == light


def test_examples_have_tabs(opened: Any) -> None:
    tabs = opened.find_elements("css selector", "[role=tab]")
    panels = opened.find_elements("class name", "example")
    assert len(tabs) == len(panels) == 3
    assert [panel.is_displayed() for panel in panels] == [True, False, False]
    tabs[2].click()
    assert [panel.is_displayed() for panel in panels] == [False, False, True]
    tabs[2].send_keys(webdriver.Keys.ARROW_RIGHT)
    assert [panel.is_displayed() for panel in panels] == [True, False, False]
    node = panels[0].find_element("css selector", ".pair circle.node")
    into_view(opened, node)
    webdriver.ActionChains(opened).move_to_element(node).perform()
    assert element(opened, "tip").text.startswith("node ")


@pytest.mark.parametrize("width", [320, 360, 768])
def test_fits_a_phone(browser: Any, page: Path, width: int) -> None:
    opened = open_page(browser, page, width, 740)
    for item in opened.find_elements("tag name", "summary"):
        item.click()
    wide = opened.execute_script(
        "return [...document.querySelectorAll('main *')].filter((e) => "
        "e.getBoundingClientRect().right > arguments[0] + 1).map((e) => e.tagName + e.className)",
        width,
    )
    assert wide == []
    assert opened.execute_script("return document.documentElement.scrollWidth") <= width
    assert complaints(opened) == []


def test_tapping_shows_the_graph(browser: Any, page: Path) -> None:
    opened = open_page(browser, page, 360, 740)
    canvas = element(opened, "canvas")
    into_view(opened, canvas)
    x, y = opened.execute_script(
        "const c = arguments[0], b = c.getBoundingClientRect(), p = c.whereIs(5);"
        "return [b.left + p[0], b.top + p[1]]",
        canvas,
    )
    tap = {"type": "touchStart", "touchPoints": [{"x": x, "y": y}]}
    opened.execute_cdp_cmd("Input.dispatchTouchEvent", tap)
    opened.execute_cdp_cmd("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
    assert shown(opened, "card")
    picked = opened.execute_script("return document.getElementById('canvas').dataset.picked")
    assert f"graph g{picked} " in element(opened, "card").text
    assert f"graph g{picked} " in element(opened, "chosen").text


def test_map_of_nodes_shows_their_surroundings(browser: Any, tmp_path: Path) -> None:
    data = toy_nodes(60)
    settings = {"hidden": 8, "epochs": 2}
    pretrain(data, settings, out=tmp_path / "run", device="cpu")
    opened = open_page(browser, write_report(tmp_path / "run", data, examples=1))
    pointer(opened, 4).perform()
    card = element(opened, "card")
    assert card.text.startswith("node ")
    assert len(card.find_elements("class name", "ring")) == 1
    assert "degree" in card.text
    assert complaints(opened) == []


def test_parts_of_large_graphs_are_drawn_and_that_is_said(browser: Any, tmp_path: Path) -> None:
    a, b = np.triu_indices(80, k=1)
    edges = torch.from_numpy(np.stack([np.concatenate([a, b]), np.concatenate([b, a])]))
    both = torch.cat([edges, edges + 80], dim=1)
    batch = torch.arange(2).repeat_interleave(80)
    data = Dataset("dense", "graph", GraphBatch(torch.ones(160, 1), both, batch, 2))
    pretrain(data, {"hidden": 8, "epochs": 1}, out=tmp_path, device="cpu")
    opened = open_page(browser, write_report(tmp_path, data, examples=1))
    told = "Drawn: 60 of 80 nodes, 150 of 1770 edges between them"
    assert told in element(opened, "chosen").text
    assert "drawn are 150 of the 1770 edges between them" in element(opened, "views").text
    assert complaints(opened) == []


def test_page_of_few_rows(browser: Any, tmp_path: Path) -> None:
    data = toy_graphs(3)
    pretrain(data, {"hidden": 8, "epochs": 1}, out=tmp_path, device="cpu")
    opened = open_page(browser, write_report(tmp_path, data))
    assert len(opened.find_elements("css selector", ".near button")) == 2
    assert not shown(opened, "layouts")  # there is but one
    assert complaints(opened) == []
