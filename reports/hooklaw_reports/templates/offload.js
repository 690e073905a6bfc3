"use strict";

// The offload page: for each chart a question, the points, and their rows in the table.

const LEGEND = [
  ["plain", (point) => point.shape === "plain", "the plain step"],
  ["lossless on-lossless", (point) => point.shape === "lossless" && point.line, "on the frontier"],
  ["lossless", (point) => point.shape === "lossless" && !point.line, "beaten by another"],
  ["lossy", (point) => point.shape === "lossy", "lossy: the gradients differ; a broken line joins its own frontier"],
  ["lossless unlawful", (point) => point.shape.includes("unlawful"), "breaks the packer law, so it is on no frontier"],
];

function legend(points) {
  const items = LEGEND.filter(([, fits]) => points.some(fits)).map(([kind, , words]) => {
    const sign = svg("svg", { width: 20, height: 20, viewBox: "0 0 20 20", "aria-hidden": "true", class: `point ${kind}` });
    sign.append(...shape(kind, 10, 10));
    return make("li", {}, sign, words);
  });
  return make("ul", { class: "legend" }, ...items);
}

function figures(point) {
  const pairs = point.facts.map(([name, text]) => make("div", {}, make("dt", {}, name), make("dd", {}, text)));
  return make("dl", { class: "facts" }, ...pairs);
}

// When a device computed and when it copied: a bar for each, over the time of one step.
const WORK = [["compute", "computes"], ["out", "copies out"], ["back", "copies back"]];

function timeline(point) {
  const lanes = WORK.filter(([lane]) => point.timeline?.[lane]);
  const end = Math.max(...lanes.flatMap(([lane]) => point.timeline[lane].map(([, stop]) => stop)));
  const bars = lanes.map(([lane, word]) => {
    const spans = point.timeline[lane];
    const busy = spans.reduce((sum, [start, stop]) => sum + stop - start, 0);
    const line = svg("svg", { viewBox: "0 0 1000 10", preserveAspectRatio: "none", class: lane, "aria-hidden": "true" });
    const drawn = spans.map(([start, stop]) => `M${(start / end) * 1000} 0H${(stop / end) * 1000}V10H${(start / end) * 1000}z`);
    line.append(svg("path", { d: drawn.join("") }));
    return [make("dt", {}, word), make("dd", {}, line, make("span", {}, `${Math.round(busy * 1000)} ms`))];
  });
  const caption = make("figcaption", {}, `What the device did in one step of ${Math.round(end * 1000)} ms, under the profiler`);
  return lanes.length ? [make("figure", { class: "timeline" }, caption, make("dl", {}, ...bars.flat()))] : [];
}

function parseBudget(text) {
  const [, number, unit] = /^([\d.e+]+)([kMG]?B)$/.exec(text) ?? [];
  const bytes = Number(number) * (new Map(SIZES).get(unit) ?? NaN);
  return bytes > 0 ? { bytes, number, unit, text: `${number} ${unit}` } : { bytes: 0 };
}

// A table sorted by the column whose heading is pressed; cells that were not measured come last.
class SortedTable {
  constructor(table, reopen) {
    this.body = $("tbody", table);
    this.heads = $$("thead th", table);
    this.reopen = reopen;
    this.heads.forEach((head, column) => {
      const button = make("button", { type: "button" }, head.textContent);
      button.addEventListener("click", () => this.sort(column, head));
      head.replaceChildren(button);
    });
  }

  key(row, column) {
    const cell = row.cells[column];
    if (!column || cell.matches(".state")) return cell.textContent;
    return cell.dataset.v === undefined ? null : Number(cell.dataset.v);
  }

  sort(column, head) {
    const down = head.getAttribute("aria-sort") === "ascending";
    for (const other of this.heads) other.setAttribute("aria-sort", "none");
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    const rows = $$("tr[data-cell]", this.body).map((row) => [this.key(row, column), row]);
    const compare = (a, b) => (typeof a === "string" ? a.localeCompare(b) : a - b) * (down ? -1 : 1);
    rows.sort(([a], [b]) => (a === null || b === null ? (a === null) - (b === null) : compare(a, b)));
    this.body.replaceChildren(...rows.map(([, row]) => row));
    this.reopen();
  }
}

class Chart {
  constructor(section) {
    this.section = section;
    this.slug = section.dataset.chart;
    this.data = details().charts[this.slug];
    this.plot = $(".plot", section);
    this.form = $(".ask", section);
    this.output = $("output", section);
    this.rows = new Map($$("tr[data-cell]", section).map((row) => [row.dataset.cell, row]));
    this.width = 0;
    this.current = 0;
    this.makeRows();
    this.table = new SortedTable($("table", section), () => this.showRows(true));
    this.form.hidden = false;
    this.listen();
  }

  makeRows() {
    for (const [name, row] of this.rows) {
      const button = make("button", { type: "button", "aria-expanded": "false" }, name);
      button.addEventListener("click", () => this.toggle(name));
      $("th", row).replaceChildren(button);
    }
  }

  listen() {
    this.form.addEventListener("submit", (event) => event.preventDefault());
    this.form.addEventListener("input", () => this.ask());
    this.plot.addEventListener("pointermove", (event) => this.near(event));
    this.plot.addEventListener("pointerleave", () => this.untip());
    this.plot.addEventListener("click", (event) => {
      const index = this.nearest(event);
      if (index >= 0 && event.target.closest("svg")) this.reach(index);
    });
    this.plot.addEventListener("keydown", (event) => this.key(event));
    this.plot.addEventListener("focusin", (event) => this.focused(event.target));
    this.plot.addEventListener("focusout", () => this.untip());
  }

  ask() {
    const { number, unit } = this.form.elements;
    const others = state.fits.filter((asked) => !asked.startsWith(`${this.slug}:`));
    change({ fits: [...others, `${this.slug}:${number.value}${unit.value}`] }, { step: false });
  }

  budget() {
    const asked = state.fits.find((fits) => fits.startsWith(`${this.slug}:`));
    const { number, unit } = this.form.dataset;
    return parseBudget(asked ? asked.slice(this.slug.length + 1) : `${number}${unit}`);
  }

  answer(budget) {
    if (!budget.bytes) return ["Say how much memory there is: a number above 0.", ""];
    const [, before, after, strategy] = this.data.answers.findLast(([least]) => least <= budget.bytes);
    return [`${before}${budget.text}${after}`, strategy];
  }

  show() {
    const budget = this.budget();
    const [text, strategy] = this.answer(budget);
    const { number, unit } = this.form.elements;
    if (budget.bytes && number.value !== budget.number) number.value = budget.number;
    if (budget.bytes && unit.value !== budget.unit) unit.value = budget.unit;
    if (this.output.textContent !== text) this.output.textContent = text;
    this.draw(budget, strategy);
    this.showRows();
  }

  fit() {
    if (this.plot.clientWidth !== this.width) this.show();
    const wide = $(".wide", this.section);
    label(wide, wide.scrollWidth > wide.clientWidth, `Figures, ${this.data.title}`);
  }

  draw(budget, strategy) {
    const wanted = `${this.plot.clientWidth} ${budget.text} ${strategy}`;
    if (wanted === this.drawn || !this.data.points.some((point) => point.x !== undefined)) return;
    this.drawn = wanted;
    this.width = this.plot.clientWidth;
    this.chart = drawChart(this.data, this.width, budget, strategy);
    this.tip = make("div", { class: "tip", hidden: "" });
    this.plot.replaceChildren(this.chart.picture, this.tip);
    $(".legend", this.section)?.remove();
    $(".beside", this.section).prepend(legend(this.chart.points));
    this.chart.drawn[this.current]?.setAttribute("tabindex", "0");
  }

  nearest(event) {
    if (!this.chart) return -1;
    const box = this.chart.picture.getBoundingClientRect();
    const [x, y] = [event.clientX - box.left, event.clientY - box.top];
    const far = this.chart.places.map((place) => Math.hypot(place.x - x, place.y - y));
    const least = Math.min(...far);
    return least < 22 ? far.indexOf(least) : -1;
  }

  near(event) {
    if (event.target.closest(".tip")) return;
    const index = this.nearest(event);
    if (index >= 0) this.showTip(index);
    else this.untip();
  }

  showTip(index) {
    const [point, place] = [this.chart.points[index], this.chart.places[index]];
    this.chart.drawn.forEach((drawn, at) => drawn.classList.toggle("near", at === index));
    this.tip.replaceChildren(make("strong", {}, point.name), ` ${point.words}`, figures(point));
    this.tip.hidden = false;
    const room = this.width - this.tip.offsetWidth;
    const [right, left] = [place.x + 16, place.x - 16 - this.tip.offsetWidth];
    const below = right > room && left < 0;
    this.tip.style.left = `${below ? Math.max(0, room / 2) : right <= room ? right : left}px`;
    const lowest = this.chart.picture.clientHeight - this.tip.offsetHeight;
    this.tip.style.top = `${below ? place.y + 20 : Math.max(0, Math.min(place.y - 20, lowest))}px`;
  }

  untip() {
    if (!this.chart) return;
    this.tip.hidden = true;
    for (const drawn of this.chart.drawn) drawn.classList.remove("near");
  }

  focused(target) {
    const index = this.chart.drawn.indexOf(target.closest(".point"));
    if (index < 0) return;
    this.chart.drawn[this.current].setAttribute("tabindex", "-1");
    this.chart.drawn[index].setAttribute("tabindex", "0");
    this.current = index;
    this.showTip(index);
  }

  key(event) {
    const last = this.chart.drawn.length - 1;
    const to = {
      ArrowRight: Math.min(last, this.current + 1), ArrowDown: Math.min(last, this.current + 1),
      ArrowLeft: Math.max(0, this.current - 1), ArrowUp: Math.max(0, this.current - 1), Home: 0, End: last,
    }[event.key];
    if (to !== undefined) this.chart.drawn[to].focus();
    else if (event.key === "Enter" || event.key === " ") this.reach(this.current);
    else if (event.key === "Escape") this.untip();
    else return;
    event.preventDefault();
  }

  // From a point to its row.
  reach(index) {
    const { name } = this.chart.points[index];
    if (!state.cell.includes(this.id(name))) this.toggle(name);
    this.untip();
    const button = $("button", this.rows.get(name));
    button.scrollIntoView({ block: "center" });
    button.focus({ preventScroll: true });
  }

  id(name) {
    return `${this.slug}/${name}`;
  }

  toggle(name) {
    const others = state.cell.filter((cell) => cell !== this.id(name));
    change({ cell: others.length < state.cell.length ? others : [...others, this.id(name)] });
  }

  showRows(again = false) {
    for (const [name, row] of this.rows) {
      const button = $("button", row);
      const wanted = state.cell.includes(this.id(name));
      const is = button.getAttribute("aria-expanded") === "true" && !again;
      if (wanted === is) continue;
      button.setAttribute("aria-expanded", String(wanted));
      if (wanted) row.after(this.opened(name, row.cells.length));
      else if (row.nextElementSibling?.matches(".open-cell")) row.nextElementSibling.remove();
    }
  }

  opened(name, columns) {
    const point = this.data.points.find((other) => other.name === name);
    const inner = make("div", { class: "opened" });
    if (point.about) inner.append(make("p", {}, point.about));
    if (point.detail) inner.append(make("pre", {}, point.detail));
    inner.append(figures(point), ...timeline(point));
    return make("tr", { class: "open-cell" }, make("td", { colspan: columns }, inner));
  }
}

class OffloadPage {
  constructor(root) {
    this.root = root;
    this.name = "offload";
    this.charts = null;
  }

  show() {
    this.charts ??= $$(".chart", this.root).map((section) => new Chart(section));
    for (const chart of this.charts) chart.show();
    const wanted = this.charts.find((chart) => chart.slug === state.chart);
    return wanted?.section ?? null;
  }

  fit() {
    document.documentElement.style.scrollPaddingTop = "0px";
    for (const chart of this.charts) chart.fit();
  }

  has() {
    return false;
  }
}
