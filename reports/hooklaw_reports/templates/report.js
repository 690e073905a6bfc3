"use strict";

// The page keeps its state in the fragment of its address, so a link, a reload and the back button restore it.

let data = null;
let pages = [];
let at = null;

function details() {
  data ??= JSON.parse($("#data").textContent);
  return data;
}

function readState() {
  const given = new URLSearchParams(location.hash.slice(1));
  return {
    page: given.get("page") ?? "",
    q: given.get("q") ?? "",
    outcome: given.getAll("outcome"),
    on: given.get("on") ?? "",
    disagree: given.getAll("disagree"),
    level: given.getAll("level"),
    chapter: given.get("chapter") ?? "",
    theme: given.get("theme") ?? "",
    rule: given.getAll("rule"),
    said: given.getAll("said"),
    chart: given.get("chart") ?? "",
    fits: given.getAll("fits"),
    cell: given.getAll("cell"),
  };
}

let state = readState();

function fragment() {
  const pairs = Object.entries(state).flatMap(([name, value]) => [value].flat().map((item) => [name, item]));
  return new URLSearchParams(pairs.filter(([, value]) => value)).toString();
}

// A click is a step that the back button undoes; a key typed into the search box is not.
function change(parts, { step = true } = {}) {
  state = { ...state, ...parts };
  const address = `${location.href.split("#")[0]}#${fragment()}`;
  history[step ? "pushState" : "replaceState"](null, "", address);
  show();
}

function dark() {
  return state.theme ? state.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

function showTheme() {
  if (state.theme) document.documentElement.dataset.theme = state.theme;
  else delete document.documentElement.dataset.theme;
  $("#theme").textContent = dark() ? "Switch to light" : "Switch to dark";
}

// A link to a rule need not say on which page it stands.
function choosePage() {
  const named = pages.find((page) => page.name === state.page);
  at = named ?? pages.find((page) => state.rule.some((id) => page.has(id))) ?? pages[0];
  if (at !== pages[0]) state.page = at.name;
  for (const page of pages) page.root.hidden = page !== at;
  for (const link of $$("nav a")) {
    link.href = `#${new URLSearchParams({ page: link.dataset.page, ...(state.theme && { theme: state.theme }) })}`;
    if (link.dataset.page === at.name) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
}

function show() {
  showTheme();
  choosePage();
  return at.show();
}

// A linked rule is scrolled to a place below the names, which is known once the filters are shown.
function arrive() {
  const opened = show();
  at.fit();
  opened?.scrollIntoView();
}

function listen() {
  $("#theme").addEventListener("click", () => change({ theme: dark() ? "light" : "dark" }));
  addEventListener("hashchange", () => {
    const before = at;
    state = readState();
    arrive();
    if (at !== before && !state.rule.length && !state.chart) scrollTo(0, 0);
  });
  new ResizeObserver(() => at.fit()).observe(document.body);
}

const KINDS = { offload: OffloadPage, folklore: FolklorePage };
pages = $$(".page").map((root) => new (KINDS[root.dataset.page] ?? Sheet)(root));
$("#theme").hidden = false;
arrive();
listen();
