"""The live view on a terminal, drawn by textual. Brokers are asked in a thread."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, final

from rich.text import Text
from textual.app import App
from textual.widgets import DataTable, Footer, Static

from rmq.cli.common.tables import cell_text
from rmq.cli.top.view import BROKER_COLUMNS, GROUP_COLUMNS, view_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from textual.app import ComposeResult
    from textual.binding import BindingType

    from rmq.cli.common.tables import Cell
    from rmq.cli.top.view import Asked


@final
class Top(App[None]):
    """Shows what it is told, again and again."""

    CSS = """
    #head { height: 1; padding: 0 1; }
    #brokers { height: auto; max-height: 40%; margin: 1 0; }
    #groups { height: 1fr; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        ("q", "quit", "Quit"),
        ("p", "pause", "Pause"),
        ("r", "refresh", "Ask now"),
    ]
    ENABLE_COMMAND_PALETTE = False

    def __init__(self, ask: Callable[[], Asked], interval_s: float) -> None:
        """`ask` may take a while: it is called in a thread, never twice at a time."""
        super().__init__()
        self._ask = ask
        self._interval_s = interval_s
        self._before: Asked | None = None
        self._is_asking = False
        self._is_paused = False

    def compose(self) -> ComposeResult:
        """Return the parts of the screen."""
        yield Static("asking ...", id="head")
        yield DataTable[Text](id="brokers", cursor_type="none", zebra_stripes=True)
        yield DataTable[Text](id="groups", cursor_type="row", zebra_stripes=True)
        yield Footer()

    def on_mount(self) -> None:
        """Begin to ask."""
        self._table("brokers").add_columns(*BROKER_COLUMNS)
        self._table("groups").add_columns(*GROUP_COLUMNS)
        self.set_interval(self._interval_s, self._ask_again)
        self._ask_again()

    def action_pause(self) -> None:
        """Stop asking, or go on."""
        self._is_paused = not self._is_paused
        self.sub_title = "paused" if self._is_paused else ""

    def action_refresh(self) -> None:
        """Ask now."""
        self._begin()

    def _ask_again(self) -> None:
        if not self._is_paused:
            self._begin()

    def _begin(self) -> None:
        if not self._is_asking:
            self._is_asking = True
            self.run_worker(self._work, thread=True)

    def _work(self) -> None:
        asked = self._ask()
        self.call_from_thread(self._show, asked)

    def _show(self, asked: Asked) -> None:
        self._is_asking = False
        view = view_of(asked, self._before)
        if asked.problem is None:
            self._before = asked
        self.query_one("#head", Static).update(cell_text(view.head))
        self._fill("brokers", view.brokers)
        self._fill("groups", view.groups)

    def _fill(self, name: str, rows: Sequence[tuple[Cell, ...]]) -> None:
        table = self._table(name)
        row, top = table.cursor_row, table.scroll_y
        table.clear()
        for cells in rows:
            table.add_row(*map(cell_text, cells))
        table.move_cursor(row=min(row, max(0, len(rows) - 1)), scroll=False)
        table.scroll_to(y=top, animate=False)

    def _table(self, name: str) -> DataTable[Text]:
        table: DataTable[Text] = self.query_one(f"#{name}", DataTable)
        return table
