"""The report in a real browser: it draws, it can be clicked, and it complains about nothing."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stridewise as sw
from stridewise.graph import Graph

from .models import light_model_with_reorders, light_models, random_inputs

webdriver = pytest.importorskip("selenium.webdriver", reason="pip install 'stridewise[test]'")
from selenium.webdriver.common.by import By  # noqa: E402
from selenium.webdriver.common.keys import Keys  # noqa: E402

CHROMIUM = next((p for p in map(shutil.which, ("chromium", "chromium-browser")) if p), None)
DRIVER = shutil.which("chromedriver")

pytestmark = pytest.mark.skipif(
    CHROMIUM is None or DRIVER is None,
    reason="no Chromium with its driver here: apt-get install chromium chromium-driver",
)

ARGUMENTS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--no-first-run", "--disable-dev-shm-usage",
)  # fmt: skip
HOSTILE = '"><img src=x onerror="document.title=1"></script><script>document.title=2</script>'


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM or ""
    for argument in (*ARGUMENTS, f"--user-data-dir={tmp_path_factory.mktemp('chromium')}"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options, webdriver.ChromeService(executable_path=DRIVER))
    driver.set_window_size(1280, 900)
    yield driver
    driver.quit()


class Shown:
    """A page in the browser."""

    def __init__(self, browser: Any, path: Path) -> None:
        self.browser = browser
        browser.get(path.as_uri())

    def all(self, selector: str) -> list[Any]:
        return self.browser.find_elements(By.CSS_SELECTOR, selector)

    def one(self, selector: str) -> Any:
        return self.browser.find_element(By.CSS_SELECTOR, selector)

    def run(self, script: str, *arguments: Any) -> Any:
        return self.browser.execute_script(script, *arguments)

    def text(self, selector: str) -> str:
        return self.run("return document.querySelector(arguments[0]).textContent", selector)

    def press(self, element: Any) -> None:
        """Click as a user does, where the page is scrolled to it."""
        self.run("arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})", element)
        webdriver.ActionChains(self.browser).move_to_element(element).click().perform()

    def names(self) -> list[str]:
        """The names in the table in the order in which it shows them."""
        return self.run(
            "return [...document.querySelectorAll('#table tbody tr')].filter(r => !r.hidden)"
            ".map(r => r.cells[1].textContent)"
        )

    def column(self, index: int) -> list[float]:
        return self.run(
            "return [...document.querySelectorAll('#table tbody tr')]"
            ".map(r => Number(r.cells[arguments[0]].dataset.key))",
            index,
        )

    def complaints(self) -> list[str]:
        return [entry["message"] for entry in self.browser.get_log("browser")]


Show = Callable[[str], Shown]


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Reports of light models, each made once."""
    folder = tmp_path_factory.mktemp("pages")

    def page(name: str) -> Path:
        path = folder / f"{name}.html"
        if not path.exists():
            model = sw.compile(light_models()[name], tune="model", threads=2)
            inputs = random_inputs(model.plan.graph) if name == "squeezenet" else None
            path.write_text(model.report_html(inputs, runs=2), "utf-8")
        return path

    return page


@pytest.fixture
def show(browser: Any, pages: Callable[[str], Path]) -> Iterator[Show]:
    """Open reports, and look at the end whether the browser complained."""
    shown: list[Shown] = []

    def call(name: str) -> Shown:
        shown.append(Shown(browser, pages(name)))
        return shown[-1]

    yield call
    assert [message for page in shown for message in page.complaints()] == []


def save(browser: Any, graph: Graph, path: Path) -> Shown:
    path.write_text(sw.plan(graph, tune="model", threads=1).to_html(), "utf-8")
    return Shown(browser, path)


# --- it draws -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["squeezenet", "resnet50", "densenet121"])
def test_a_report_draws_graph_and_memory(show: Show, name: str):
    page = show(name)
    assert page.text("h1")
    assert len(page.all("#drawing .vertex")) > 5
    assert len(page.all("#drawing .edge")) >= len(page.all("#drawing .vertex")) - 1
    assert page.all("#arena .block")
    assert page.all("#legend button")
    assert page.run("return [...document.images].every(i => i.alt && i.src.startsWith('data:'))")


def test_no_two_boxes_overlap(show: Show):
    page = show("densenet121")
    page.press(page.one("#unfold"))
    boxes = page.run(
        "return [...document.querySelectorAll('#drawing .vertex > .box')]"
        ".map(b => { const r = b.getBoundingClientRect(); return [r.x, r.y, r.right, r.bottom]; })"
    )
    found = np.array(boxes)
    left, top, right, bottom = (found[:, None, i] for i in range(4))
    apart = (right <= left.T + 0.01) | (left + 0.01 >= right.T)
    apart |= (bottom <= top.T + 0.01) | (top + 0.01 >= bottom.T)
    assert (apart | np.eye(len(found), dtype=bool)).all()


@pytest.mark.parametrize("width", [360, 1280])
def test_the_page_fits_its_window(show: Show, width: int, browser: Any):
    size = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    try:
        page = show("squeezenet")
        assert page.run("return document.documentElement.scrollWidth") <= width
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


# --- it can be used -------------------------------------------------------------------------------


def test_a_click_on_a_node_shows_its_candidates_and_times(show: Show):
    page = show("squeezenet")
    node = page.one("#drawing .vertex:not(.io):not(.moves):not(.fold)")
    page.press(node)
    details = page.text("#details")
    assert "candidates" in details
    assert "predicted" in details
    assert "measured" in details
    rows = page.all("#details .candidates tbody tr")
    assert len(rows) > 1
    assert [row.get_attribute("class") for row in rows] == ["best"] + ["rejected"] * (len(rows) - 1)
    assert len(page.all("#drawing .vertex.chosen")) == 1
    assert len(page.all("#table tr.picked")) == 1


def test_a_click_on_a_reorder_and_on_an_edge_says_what_moves(show: Show):
    page = show(light_model_with_reorders())
    page.press(page.all("#drawing .vertex.moves")[0])
    assert page.text("#details h3") == "reorder"
    page.run(
        "document.querySelector('#drawing .grip')"
        ".dispatchEvent(new Event('click', {bubbles: true}))"
    )
    assert "from and to" in page.text("#details")
    page.press(page.one("#details button.link"))
    assert page.all("#drawing .vertex.chosen")


def test_blocks_unfold_and_fold(show: Show):
    page = show("resnet50")
    before = len(page.all("#drawing .vertex"))
    page.press(page.one("#zoom-fit"))
    folds = page.all("#drawing .vertex.fold")
    assert len(folds) > 1
    label = folds[0].get_attribute("aria-label")
    page.press(folds[0])
    opened = len(page.all("#drawing .vertex"))
    times = int(label.split(" ")[0])
    assert opened > before + times
    assert len(page.all("#drawing .frame")) == 1
    page.press(page.one("#drawing .refold"))
    assert len(page.all("#drawing .vertex")) == before
    page.press(page.one("#unfold"))
    assert page.all("#drawing .vertex.fold") == []
    page.press(page.one("#unfold"))
    assert len(page.all("#drawing .vertex")) == before


def test_search_finds_and_goes_there(show: Show):
    page = show("resnet50")
    field = page.one("#search")
    field.send_keys("Max_Pool")
    assert page.text("#found") == "1 found"
    assert len(page.all("#drawing .vertex.hit")) == 1
    field.send_keys(Keys.ENTER)
    assert page.text("#details h3") == "max_pool"
    field.clear()
    field.send_keys("conv + add")
    found = int(page.text("#found").split()[0])
    field.send_keys(Keys.ENTER)
    field.send_keys(Keys.ENTER)
    assert page.text("#found") == f"2 of {found}"
    assert "conv + add" in page.text("#details h3")
    field.send_keys(Keys.CONTROL, "a")
    field.send_keys("no such thing")
    assert page.text("#found") == "0 found"


def test_the_table_sorts_and_filters(show: Show):
    page = show("squeezenet")
    titles = page.all("#table thead button")
    assert page.column(0) == sorted(page.column(0))
    for index in (5, 6):
        page.press(titles[index])
        assert page.column(index) == sorted(page.column(index), reverse=True)
        page.press(titles[index])
        assert page.column(index) == sorted(page.column(index))
    assert titles[6].find_element(By.XPATH, "..").get_attribute("aria-sort") == "ascending"
    page.press(titles[1])
    names = page.names()
    assert names == sorted(names, key=page.run("return arguments[0]", names).index)
    page.one("#filter").send_keys("softmax")
    assert len(page.names()) == 1
    page.press(page.one("#table tbody tr:not([hidden]) button"))
    assert page.text("#details h3") == "softmax"


def test_one_format_can_be_seen_alone(show: Show):
    page = show("squeezenet")
    buttons = page.all("#legend button")
    page.press(buttons[-1])
    assert buttons[-1].get_attribute("aria-pressed") == "true"
    dim = len(page.all("#drawing .vertex.dim"))
    assert 0 < dim < len(page.all("#drawing .vertex"))
    page.press(buttons[-1])
    assert page.all("#drawing .vertex.dim") == []


def test_keys_are_enough(show: Show):
    page = show("resnet50")
    page.run("document.getElementById('drawing').focus()")
    shown: list[str] = []
    for _ in range(3):
        keys = webdriver.ActionChains(page.browser)
        keys.send_keys(Keys.ARROW_DOWN, Keys.ENTER).perform()
        shown.append(page.text("#details h3"))
    assert shown[0] != shown[1] != shown[2]
    assert any("conv" in text for text in shown)
    assert page.run("return document.activeElement.classList.contains('vertex')")
    before = page.run("return document.querySelector('#drawing > g').getAttribute('transform')")
    webdriver.ActionChains(page.browser).send_keys("+").perform()
    after = page.run("return document.querySelector('#drawing > g').getAttribute('transform')")
    assert before != after


def test_a_block_of_memory_leads_to_its_node(show: Show):
    page = show("squeezenet")
    page.press(page.one("#arena .block"))
    assert "steps 1 to" in page.text("#block")
    page.press(page.one("#block button"))
    assert page.all("#drawing .vertex.chosen")


# --- it holds -------------------------------------------------------------------------------------


def test_hostile_names_run_nothing(browser: Any, tmp_path: Path):
    b = sw.GraphBuilder(HOSTILE)
    x = b.input(HOSTILE, (1, 4, 4, 4))
    y = b.op("conv", [x, b.constant(np.ones((4, 4, 1, 1), np.float32))], name=HOSTILE + "1")
    y = b.op("max_pool", [y], {"kernel": (2, 2)}, name=HOSTILE + "2", output=HOSTILE + "3")
    page = save(browser, b.build([y]), tmp_path / "hostile.html")
    for vertex in page.all("#drawing .vertex"):
        page.press(vertex)
        assert HOSTILE in page.text("#details")
    assert page.text("h1") == HOSTILE
    assert browser.title == f"{HOSTILE} \u2013 Stridewise"
    assert page.all("img[src='x']") == []
    assert page.complaints() == []


def test_a_thousand_different_nodes_open_at_once(browser: Any, tmp_path: Path):
    rng = np.random.default_rng(0)
    b = sw.GraphBuilder("wide")
    made = [b.input("x", (1, 4))]
    for _ in range(1500):
        op = str(rng.choice(["relu", "exp", "tanh", "add", "mul"]))
        recent = [made[-1 - min(int(rng.integers(0, 8)), len(made) - 1)] for _ in range(2)]
        made.append(b.op(op, recent if op in ("add", "mul") else recent[:1]))
    readers = {name for node in b.build(made[-1:]).nodes for name in node.inputs}
    page = save(browser, b.build([m for m in made if m not in readers]), tmp_path / "wide.html")
    assert page.complaints() == []
    boxes = len(page.all("#drawing .vertex"))
    assert 100 < boxes < 1100
    took = page.run(
        "const start = performance.now(); document.getElementById('unfold').click();"
        "return performance.now() - start"
    )
    assert took < 20_000
    assert len(page.all("#drawing .vertex")) > 1100
