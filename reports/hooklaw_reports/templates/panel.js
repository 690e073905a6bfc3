"use strict";

// The panel of an opened rule. All text comes from the records and is set as text, never as markup.

const $ = (selector, root = document) => root.querySelector(selector);
const $$ = (selector, root = document) => [...root.querySelectorAll(selector)];

function make(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

// An element that scrolls is reached by the keyboard and has a name.
function label(node, scrolls, name) {
  for (const [attribute, value] of [["tabindex", "0"], ["role", "region"], ["aria-label", name]]) {
    if (scrolls) node.setAttribute(attribute, value);
    else node.removeAttribute(attribute);
  }
}

function link(text, address) {
  return /^https?:\/\//.test(address) ? make("a", { href: address, rel: "noreferrer" }, text) : text;
}

function fact(name, ...items) {
  if (!items.length) return [];
  const list = make("ul", {}, ...items.map((item) => make("li", {}, item)));
  return [make("dt", {}, name), make("dd", {}, list)];
}

function saidOf([id, verdict, claim]) {
  return make("span", {}, `${verdict}: `, make("a", { href: `#page=folklore&q=${encodeURIComponent(id)}` }, claim));
}

function facts(id, rule, { law, judged }) {
  const level = rule.basis === "documented" ? rule.level : `${rule.level}, ${rule.basis} only`;
  return make(
    "dl", {},
    ...fact(law[0].toUpperCase() + law.slice(1), make("a", { href: `#rule=${encodeURIComponent(id)}` }, id)),
    ...fact("Level", level),
    ...fact(rule.basis === "documented" ? "Documented in" : "Basis", ...rule.sources.map(([text, url]) => link(text, url))),
    ...fact("Needs", ...rule.needs),
    ...fact("Decides what is said", ...(rule.said ?? []).map(saidOf)),
    ...fact(`Catches a ${judged} where`, ...rule.mutants.map((mutant) => mutant.replaceAll("-", " "))),
  );
}

function entryNote(entry, verdict) {
  const when = [entry.when && `for ${entry.when}`, entry.expires && `until ${entry.expires}`, entry.at].filter(Boolean).join(", ");
  const saw = entry.saw && verdict === "regression" ? ` with “${entry.saw}”` : "";
  const note = make("div", { class: "note" }, make("p", {}, `Known: ${entry.outcome}${saw}, because ${entry.reason}`));
  if (verdict === "fixed") note.append(make("p", {}, "It holds now, so the entry can go."));
  if (entry.issue) note.append(make("p", {}, link(entry.issue, entry.issue)));
  if (when) note.append(make("p", { class: "muted" }, when));
  return note;
}

function table(caption, heads, rows) {
  const head = make("tr", {}, ...heads.map((text) => make("th", { scope: "col" }, text)));
  const body = rows.map(({ cells, differs }) => {
    const [first, ...rest] = cells;
    const row = make("tr", {}, make("th", { scope: "row" }, first), ...rest.map((text) => make("td", {}, text)));
    if (differs) row.className = "differs";
    return row;
  });
  return make("table", { class: "small-table" }, make("caption", {}, caption), make("thead", {}, head), make("tbody", {}, ...body));
}

function checksTable(checks) {
  const rows = checks.map(([label, expected, observed, held]) => ({
    cells: [label, expected, observed, held ? "✓ holds" : "✗ differs"], differs: !held,
  }));
  return table("Values", ["value", "expected", "observed", ""], rows);
}

function eventsTable(expected, observed, first) {
  const text = (event) => (event ? event.join(": ") : "no event");
  const rows = Array.from({ length: Math.max(expected.length, observed.length) }, (_, place) => {
    const sides = expected.length ? [text(expected[place]), text(observed[place])] : [text(observed[place])];
    return { cells: [String(place + 1), ...sides, place === first ? "◀ first difference" : ""], differs: place === first };
  });
  const heads = expected.length ? ["event", "expected", "observed", ""] : ["event", "observed", ""];
  return make("details", {}, make("summary", {}, "The lanes as a table"), table("Events", heads, rows));
}

// A page opened from disk may have no clipboard; the text is then selected, so that a key press copies it.
async function copy(code, button) {
  try {
    await navigator.clipboard.writeText(code.textContent);
    button.textContent = "Copied";
  } catch {
    getSelection().selectAllChildren(code);
    button.textContent = "Selected: press Ctrl+C";
  }
}

function programNote(program) {
  const code = make("pre", { class: "program", tabindex: "0", role: "region", "aria-label": "Program" }, program);
  const button = make("button", { type: "button" }, "Copy");
  button.addEventListener("click", () => copy(code, button));
  const count = program.trimEnd().split("\n").length;
  const lines = count === 1 ? "1 line" : `${count} lines`;
  return make("details", {}, make("summary", {}, `A program that shows it, ${lines}`), button, code);
}

function groupSection(group, data, room) {
  const [tone, glyph] = data.looks[group.word];
  const mark = make("span", { class: `mark ${tone}` }, `${glyph} ${group.word}`);
  const heading = make("h3", {}, mark, group.on.map((at) => data.backends[at]).join(", "));
  const differently = group.word === "fails differently";
  const known = differently ? "the entry says that something else is seen" : "the entry expects something else";
  const why = group.expectation ? known : "no entry expects it";
  if (group.verdict === "regression" && data.law === "rule") heading.append(make("small", {}, ` (not expected: ${why})`));
  const section = make("section", { class: "group" }, heading);
  if (group.expectation) section.append(entryNote(group.expectation, group.verdict));
  if (group.detail) section.append(make("pre", {}, group.detail));
  if (group.where) section.append(make("p", { class: "muted" }, "at ", make("code", {}, group.where)));
  if (group.program) section.append(programNote(group.program));
  const { expected = [], observed = [], checks = [], first } = group;
  if (expected.length || observed.length) {
    section.append(drawLanes(expected, observed, first, room), eventsTable(expected, observed, first));
  }
  if (checks.length) section.append(checksTable(checks));
  return section;
}

function panel(id, data, room) {
  const rule = data.rules[id];
  const results = make("div", {}, ...rule.groups.map((group) => groupSection(group, data, room)));
  return make("div", { class: "panel" }, facts(id, rule, data), results);
}
