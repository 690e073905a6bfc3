"use strict";

// The state of the page stands in the fragment of its address, so that a link, a reload and the back button bring it back.

const $ = (selector, root = document) => root.querySelector(selector);
const $$ = (selector, root = document) => [...root.querySelectorAll(selector)];
const bar = $("#bar");
const matrix = $("#matrix");
const heads = $("#heads");
const rules = new Map($$("tr[data-rule]").map((row) => [row.dataset.rule, row]));
const backends = $$("select[name=on] option", bar).slice(1).map((option) => option.value);
const letters = new Map($$("input[name=outcome]", bar).map((input) => [input.value, input.dataset.letter]));
let data = null;
let searchable = null;
let drawnFor = matrix.clientWidth;

function details() {
  data ??= JSON.parse($("#data").textContent);
  return data;
}

function readState() {
  const given = new URLSearchParams(location.hash.slice(1));
  return {
    q: given.get("q") ?? "",
    outcome: given.getAll("outcome"),
    on: given.get("on") ?? "",
    disagree: given.getAll("disagree"),
    level: given.getAll("level"),
    chapter: given.get("chapter") ?? "",
    theme: given.get("theme") ?? "",
    rule: given.getAll("rule"),
  };
}

let state = readState();

function fragment() {
  const pairs = Object.entries(state).flatMap(([name, value]) => [value].flat().map((one) => [name, one]));
  return new URLSearchParams(pairs.filter(([, value]) => value)).toString();
}

// A click is a step that the back button undoes; a key typed into the search is not.
function change(parts, { step = true } = {}) {
  state = { ...state, ...parts };
  const address = `${location.href.split("#")[0]}#${fragment()}`;
  history[step ? "pushState" : "replaceState"](null, "", address);
  show();
}

function formState() {
  const values = new FormData(bar);
  return {
    q: values.get("q"),
    outcome: values.getAll("outcome"),
    on: values.get("on") ?? "",
    disagree: values.getAll("disagree"),
    level: values.getAll("level"),
    chapter: values.get("chapter"),
  };
}

function showForm() {
  for (const input of $$("input, select", bar)) {
    if (input.type === "checkbox") input.checked = state[input.name].includes(input.value);
    else if (input.value !== state[input.name]) input.value = state[input.name];
  }
}

function words(id, row) {
  const rule = details().rules[id];
  const said = rule.groups.flatMap((group) => [group.detail, group.expectation?.reason, group.expectation?.issue]);
  return [$("th", row).textContent, ...rule.needs, ...rule.mutants, ...said].join("\n").toLowerCase();
}

function found(id, row, query) {
  searchable ??= new Map([...rules].map(([one, its]) => [one, words(one, its)]));
  return query.every((word) => searchable.get(id).includes(word));
}

function matches(id, row, query, wanted, column) {
  const cells = column < 0 ? row.dataset.w : row.dataset.w[column];
  return (
    (!wanted.length || wanted.some((letter) => cells.includes(letter))) &&
    (!state.level.length || state.level.includes(row.dataset.l)) &&
    (!state.disagree.length || "d" in row.dataset) &&
    (!state.chapter || row.closest(".chapter").dataset.chapter === state.chapter) &&
    (!query.length || found(id, row, query))
  );
}

function filter() {
  const query = state.q.toLowerCase().split(/\s+/).filter(Boolean);
  const wanted = state.outcome.map((word) => letters.get(word) ?? "?");
  const column = backends.indexOf(state.on);
  let shown = 0;
  for (const [id, row] of rules) {
    const fits = matches(id, row, query, wanted, column);
    row.hidden = !fits;
    if (row.nextElementSibling?.classList.contains("open-rule")) row.nextElementSibling.hidden = !fits;
    shown += fits;
  }
  showChapters();
  return shown;
}

// A chapter out of sight is not laid out; until it is, it stands in the page with about the height it will have.
function showChapters() {
  const sample = [...rules.values()].find((row) => !row.hidden)?.offsetHeight ?? 0;
  for (const chapter of $$(".chapter", matrix)) {
    const count = $$("tr[data-rule]:not([hidden])", chapter).length;
    chapter.hidden = count === 0;
    chapter.style.containIntrinsicHeight = `${56 + count * sample}px`;
  }
}

function showCount(shown) {
  const unknown = state.rule.find((id) => !rules.has(id));
  const note = unknown ? `; this report has no rule ${unknown}` : "";
  const text = `${shown} of ${rules.size} rules${note}`;
  if ($("#shown").textContent !== text) $("#shown").textContent = text;
  $("#reset").hidden = !["q", "outcome", "on", "disagree", "level", "chapter"].some((name) => state[name].length);
}

function room() {
  const width = matrix.clientWidth;
  return Math.max(240, width < 740 ? width - 24 : width - 36 - Math.min(304, Math.max(208, width * 0.25)) - 32);
}

function open(id, row) {
  const cell = make("td", { colspan: row.cells.length }, panel(id, details(), room()));
  row.after(make("tr", { class: "open-rule" }, cell));
}

function showRules() {
  let last = null;
  for (const [id, row] of rules) {
    const wanted = state.rule.includes(id);
    const button = $("button", row);
    const is = button.getAttribute("aria-expanded") === "true";
    if (wanted === is) continue;
    button.setAttribute("aria-expanded", String(wanted));
    if (wanted) open(id, row);
    else row.nextElementSibling.remove();
    if (wanted) last = row;
  }
  return last;
}

function dark() {
  return state.theme ? state.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

function showTheme() {
  if (state.theme) document.documentElement.dataset.theme = state.theme;
  else delete document.documentElement.dataset.theme;
  $("#theme").textContent = dark() ? "Light" : "Dark";
}

function show() {
  showTheme();
  showForm();
  const opened = showRules();
  showCount(filter());
  return opened;
}

function toggle(row) {
  const id = row.dataset.rule;
  const others = state.rule.filter((one) => one !== id);
  change({ rule: others.length < state.rule.length ? others : [...others, id] });
}

// The names of the backends stay below the filters, however many lines these take; a matrix wider than its place scrolls.
function fit() {
  const boxed = $("#sheet").offsetWidth > matrix.offsetWidth + 1;
  matrix.classList.toggle("boxed", boxed);
  for (const [name, value] of [["tabindex", "0"], ["role", "region"], ["aria-label", "Rules and backends"]]) {
    if (boxed) matrix.setAttribute(name, value);
    else matrix.removeAttribute(name);
  }
  const above = getComputedStyle(bar).position === "sticky" ? bar.offsetHeight : 0;
  heads.style.top = `${boxed ? 0 : above}px`;
  matrix.style.scrollPaddingTop = `${heads.offsetHeight}px`;
  document.documentElement.style.scrollPaddingTop = `${(boxed ? 0 : above) + heads.offsetHeight}px`;
  if (drawnFor !== matrix.clientWidth) redraw();
}

function redraw() {
  drawnFor = matrix.clientWidth;
  for (const panelRow of $$("tr.open-rule", matrix)) {
    const row = panelRow.previousElementSibling;
    panelRow.remove();
    open(row.dataset.rule, row);
  }
  filter();
}

// Whoever comes by a link finds the rule below the names, whose place is known once the filters are shown.
function arrive() {
  const opened = show();
  fit();
  opened?.scrollIntoView();
}

function listen() {
  bar.addEventListener("input", (event) => change(formState(), { step: event.target.name !== "q" }));
  bar.addEventListener("submit", (event) => event.preventDefault());
  bar.addEventListener("reset", (event) => {
    event.preventDefault();
    change({ q: "", outcome: [], on: "", disagree: [], level: [], chapter: "" });
    bar.elements.q.focus();
  });
  matrix.addEventListener("click", (event) => {
    const row = event.target.closest("tr[data-rule]");
    if (row && event.target.closest("button, td")) toggle(row);
  });
  matrix.addEventListener("mouseover", (event) => {
    const cell = event.target.closest("tr[data-rule] > td");
    if (cell) cell.title = `${details().backends[cell.cellIndex - 1]}: ${cell.textContent.replace(/^\W+/, "")}`;
  });
  $("#theme").addEventListener("click", () => change({ theme: dark() ? "light" : "dark" }));
  addEventListener("hashchange", () => {
    state = readState();
    arrive();
  });
  new ResizeObserver(fit).observe(bar);
  new ResizeObserver(fit).observe(document.body);
}

bar.hidden = false;
$("#theme").hidden = false;
arrive();
listen();
