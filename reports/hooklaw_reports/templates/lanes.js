"use strict";

// Lanes of events: expected above observed, one column an event, broken into lines as wide as the page allows.

const LANES = { name: 66, gap: 8, box: 24, tall: 38, lane: 5, head: 18, caption: 16, between: 12, longest: 30 };
const pen = document.createElement("canvas").getContext("2d");

function svg(tag, attributes = {}, text = "") {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.textContent = text;
  return node;
}

function shorten(text) {
  return text.length > LANES.longest ? `${text.slice(0, LANES.longest - 1)}…` : text;
}

function textWidth(text, size) {
  pen.font = `${size}px ${getComputedStyle(document.body).fontFamily}`;
  return pen.measureText(shorten(text)).width;
}

function eventWidth(event) {
  if (!event) return 66;
  return Math.max(textWidth(event[0], 12), event.length > 1 ? textWidth(event[1], 11) : 0, 22) + 20;
}

// Every event becomes a column that both lanes share; columns are then broken into lines.
function lines(lanes, room) {
  const count = Math.max(...lanes.map((lane) => lane.events.length));
  const broken = [[]];
  let x = LANES.name;
  for (let place = 0; place < count; place++) {
    const width = Math.max(...lanes.map((lane) => eventWidth(lane.events[place])));
    if (x + width > room && broken.at(-1).length) {
      broken.push([]);
      x = LANES.name;
    }
    broken.at(-1).push({ place, x, width });
    x += width + LANES.gap;
  }
  return broken;
}

function hues(lanes) {
  const labels = [...new Set(lanes.flatMap((lane) => lane.events.map((event) => event[0])))];
  return new Map(labels.map((label, index) => [label, `hue${index % 6}`]));
}

function drawEvent(event, column, y, height, hue) {
  const group = svg("g");
  const frame = { x: column.x, y, width: column.width, height, rx: 4 };
  if (!event) {
    group.append(svg("rect", { ...frame, class: "box absent" }));
    group.append(svg("text", { x: column.x + 10, y: y + height / 2 + 4, class: "value" }, "no event"));
    return group;
  }
  group.append(svg("title", {}, event.join(": ")));
  group.append(svg("rect", { ...frame, class: "box" }));
  group.append(svg("rect", { x: column.x + 1, y: y + 4, width: 3, height: height - 8, class: hue.get(event[0]) }));
  group.append(svg("text", { x: column.x + 10, y: y + 16 }, shorten(event[0])));
  if (event.length > 1) group.append(svg("text", { x: column.x + 10, y: y + 31, class: "value" }, shorten(event[1])));
  return group;
}

function drawPlace(column, y, first, right) {
  const number = svg("text", { x: column.x + 1, y: y + LANES.head - 5, class: "place" }, String(column.place + 1));
  if (!first) return [number];
  const late = column.x + 110 > right;
  const at = late ? { x: column.x + column.width, "text-anchor": "end" } : { x: column.x };
  return [number, svg("text", { ...at, y: y - 4, class: "caption" }, "▼ first difference")];
}

function drawLine(columns, lanes, y, height, first, room) {
  const drawn = [];
  const marked = columns.find((column) => column.place === first);
  const bottom = lanes.length * (height + LANES.lane);
  const right = columns.at(-1).x + columns.at(-1).width;
  if (marked) {
    const band = { x: marked.x - 4, y: y + 1, width: marked.width + 8, height: LANES.head + bottom, rx: 4 };
    drawn.push(svg("rect", { ...band, class: "band" }));
  }
  for (const column of columns) drawn.push(...drawPlace(column, y, column === marked, room));
  lanes.forEach((lane, index) => {
    const top = y + LANES.head + index * (height + LANES.lane);
    const middle = top + height / 2;
    drawn.push(svg("line", { x1: LANES.name - 8, x2: right, y1: middle, y2: middle, class: "axis" }));
    drawn.push(svg("text", { x: 0, y: middle + 4, class: "lane-name" }, lane.name));
    for (const column of columns) {
      if (column.place >= lane.events.length && column !== marked) continue;
      const event = drawEvent(lane.events[column.place], column, top, height, lane.hue);
      if (column === marked) event.setAttribute("class", "first");
      drawn.push(event);
    }
  });
  return { drawn, bottom: y + LANES.head + bottom };
}

function inWords(lanes, first) {
  const told = lanes.map((lane) => `${lane.name}: ${lane.events.map((event) => event.join(" ")).join(", ") || "nothing"}`);
  return told.join("; ") + (first === undefined ? "" : `; first difference at event ${first + 1}`);
}

function drawLanes(expected, observed, first, room) {
  const lanes = [{ name: "expected", events: expected }, { name: "observed", events: observed }];
  const shown = expected.length ? lanes : lanes.slice(1);
  const hue = hues(shown);
  for (const lane of shown) lane.hue = hue;
  const height = shown.some((lane) => lane.events.some((event) => event.length > 1)) ? LANES.tall : LANES.box;
  const picture = svg("svg", { class: "lanes", role: "img", "aria-label": inWords(shown, first) });
  let y = 0;
  for (const columns of lines(shown, room)) {
    if (columns.some((column) => column.place === first)) y += LANES.caption;
    const line = drawLine(columns, shown, y, height, first, room);
    picture.append(...line.drawn);
    y = line.bottom + LANES.between;
  }
  picture.setAttribute("width", room);
  picture.setAttribute("height", y);
  return picture;
}
