"use strict";

// A page with a matrix: its filters, its rules, and the panels of opened rules.

class Sheet {
  constructor(root) {
    this.root = root;
    this.name = root.dataset.page;
    this.laws = root.dataset.laws;
    this.bar = $(".bar", root);
    this.matrix = $(".matrix", root);
    this.heads = $(".heads", root);
    this.body = $(".body", root);
    this.rules = new Map($$("tr[data-rule]", root).map((row) => [row.dataset.rule, row]));
    this.backends = $$("select[name=on] option", this.bar).slice(1).map((option) => option.value);
    this.letters = new Map($$("input[name=outcome]", this.bar).map((input) => [input.value, input.dataset.letter]));
    this.searchable = null;
    this.drawnFor = this.matrix.clientWidth;
    this.bar.hidden = false;
    this.listen();
  }

  get details() {
    return { looks: details().looks, ...details().sheets[this.name] };
  }

  has(id) {
    return this.rules.has(id);
  }

  formState() {
    const values = new FormData(this.bar);
    return {
      q: values.get("q"),
      outcome: values.getAll("outcome"),
      on: values.get("on") ?? "",
      disagree: values.getAll("disagree"),
      level: values.getAll("level"),
      chapter: values.get("chapter"),
    };
  }

  showForm() {
    for (const input of $$("input, select", this.bar)) {
      if (input.type === "checkbox") input.checked = state[input.name].includes(input.value);
      else if (input.value !== state[input.name]) input.value = state[input.name];
    }
  }

  words(id, row) {
    const rule = this.details.rules[id];
    const said = rule.groups.flatMap((group) => [group.detail, group.expectation?.reason, group.expectation?.issue]);
    return [$("th", row).textContent, ...rule.needs, ...rule.mutants, ...said].join("\n").toLowerCase();
  }

  found(id, query) {
    this.searchable ??= new Map([...this.rules].map(([one, its]) => [one, this.words(one, its)]));
    return query.every((word) => this.searchable.get(id).includes(word));
  }

  matches(id, row, query, wanted, column) {
    const cells = column < 0 ? row.dataset.w : row.dataset.w[column];
    return (
      (!wanted.length || wanted.some((letter) => cells.includes(letter))) &&
      (!state.level.length || state.level.includes(row.dataset.l)) &&
      (!state.disagree.length || "d" in row.dataset) &&
      (!state.chapter || row.closest(".chapter").dataset.chapter === state.chapter) &&
      (!query.length || this.found(id, query))
    );
  }

  filter() {
    const query = state.q.toLowerCase().split(/\s+/).filter(Boolean);
    const wanted = state.outcome.map((word) => this.letters.get(word) ?? "?");
    const column = this.backends.indexOf(state.on);
    let shown = 0;
    for (const [id, row] of this.rules) {
      const fits = this.matches(id, row, query, wanted, column);
      row.hidden = !fits;
      if (row.nextElementSibling?.classList.contains("open-rule")) row.nextElementSibling.hidden = !fits;
      shown += fits;
    }
    this.showChapters();
    return shown;
  }

  // A chapter out of sight is not laid out; until it is, it stands in the page with about the height it will have.
  showChapters() {
    const sample = [...this.rules.values()].find((row) => !row.hidden)?.offsetHeight ?? 0;
    for (const chapter of $$(".chapter", this.matrix)) {
      const count = $$("tr[data-rule]:not([hidden])", chapter).length;
      chapter.hidden = count === 0;
      chapter.style.containIntrinsicHeight = `${56 + count * sample}px`;
    }
  }

  showCount(shown) {
    const unknown = state.rule.find((id) => !this.has(id));
    const note = unknown ? `; this report has no rule ${unknown}` : "";
    const text = `${shown} of ${this.rules.size} ${this.laws}${note}`;
    const output = $("output", this.bar);
    if (output.textContent !== text) output.textContent = text;
    const active = ["q", "outcome", "on", "disagree", "level", "chapter"].filter((name) => state[name].length);
    const folded = active.filter((name) => name !== "q").length;
    $("button[type=reset]", this.bar).hidden = !active.length;
    $(".fold", this.bar).textContent = folded ? `Filters (${folded})` : "Filters";
  }

  room() {
    const width = this.matrix.clientWidth;
    return Math.max(240, width < 740 ? width - 24 : width - 36 - Math.min(304, Math.max(208, width * 0.25)) - 32);
  }

  open(id, row) {
    const cell = make("td", { colspan: row.cells.length }, panel(id, this.details, this.room()));
    row.after(make("tr", { class: "open-rule" }, cell));
  }

  showRules() {
    let last = null;
    for (const [id, row] of this.rules) {
      const wanted = state.rule.includes(id);
      const button = $("button", row);
      const is = button.getAttribute("aria-expanded") === "true";
      if (wanted === is) continue;
      button.setAttribute("aria-expanded", String(wanted));
      if (wanted) this.open(id, row);
      else row.nextElementSibling.remove();
      if (wanted) last = row;
    }
    return last;
  }

  show() {
    this.showForm();
    const opened = this.showRules();
    this.showCount(this.filter());
    return opened;
  }

  toggle(row) {
    const id = row.dataset.rule;
    const others = state.rule.filter((one) => one !== id);
    change({ rule: others.length < state.rule.length ? others : [...others, id] });
  }

  // The names stay below the filters; where the matrix is wider than its place, names and rows scroll sideways together.
  fit() {
    const { matrix, heads, bar, body } = this;
    const wide = body.scrollWidth > body.clientWidth + 1;
    matrix.classList.toggle("scrolled", wide);
    label(heads, wide, `Columns, ${this.name}`);
    heads.setAttribute("aria-hidden", String(!wide));
    const above = getComputedStyle(bar).position === "sticky" ? bar.offsetHeight : 0;
    heads.style.top = `${above}px`;
    document.documentElement.style.scrollPaddingTop = `${above + heads.offsetHeight}px`;
    if (this.drawnFor !== matrix.clientWidth) this.redraw();
  }

  redraw() {
    this.drawnFor = this.matrix.clientWidth;
    for (const panelRow of $$("tr.open-rule", this.matrix)) {
      const row = panelRow.previousElementSibling;
      panelRow.remove();
      this.open(row.dataset.rule, row);
    }
    this.filter();
  }

  listen() {
    this.bar.addEventListener("input", (event) => change(this.formState(), { step: event.target.name !== "q" }));
    this.bar.addEventListener("submit", (event) => event.preventDefault());
    $(".fold", this.bar).addEventListener("click", (event) => {
      event.target.setAttribute("aria-expanded", String(this.bar.classList.toggle("unfolded")));
    });
    this.heads.addEventListener("scroll", () => { this.body.scrollLeft = this.heads.scrollLeft; });
    this.body.addEventListener("scroll", () => { this.heads.scrollLeft = this.body.scrollLeft; });
    this.bar.addEventListener("reset", (event) => {
      event.preventDefault();
      change({ q: "", outcome: [], on: "", disagree: [], level: [], chapter: "" });
      this.bar.elements.q.focus();
    });
    this.matrix.addEventListener("click", (event) => {
      const row = event.target.closest("tr[data-rule]");
      if (row && event.target.closest("button, td")) this.toggle(row);
    });
    this.matrix.addEventListener("mouseover", (event) => {
      const cell = event.target.closest("tr[data-rule] > td");
      if (cell) cell.title = `${this.details.backends[cell.cellIndex - 1]}: ${cell.textContent.replace(/^\W+/, "")}`;
    });
    new ResizeObserver(() => this.root.hidden || this.fit()).observe(this.bar);
  }
}
