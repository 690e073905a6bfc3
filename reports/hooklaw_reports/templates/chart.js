"use strict";

// Time against peak memory, one point for each strategy; nothing is decided here.

const PLOT = { left: 46, right: 18, top: 34, bottom: 46, tall: 400, low: 320, most: 920, reach: [9, 20, 34, 50, 70, 92] };
const SIZES = [["GB", 1e9], ["MB", 1e6], ["kB", 1e3], ["B", 1]];
const LOG_TICKS = [0.2, 0.3, 0.5, 0.7, 1, 1.5, 2, 3, 4, 5, 7, 10, 15, 20, 30, 50, 70, 100, 200, 500, 1000];

function niceStep(span, count) {
  const rough = span / count;
  const ten = 10 ** Math.floor(Math.log10(rough));
  return ten * [1, 2, 2.5, 5, 10].find((factor) => factor * ten >= rough * 0.999);
}

function steps(from, to, count) {
  const step = niceStep(to - from, count);
  const first = Math.ceil(from / step - 1e-9);
  const number = Math.floor(to / step + 1e-9) - first + 1;
  return Array.from({ length: number }, (_, index) => Number(((first + index) * step).toPrecision(12)));
}

function scaleX(points, width) {
  const most = Math.max(...points.map((point) => point.x)) * 1.07 || 1;
  const [unit, one] = SIZES.find(([, size]) => most >= size) ?? SIZES.at(-1);
  const inner = width - PLOT.left - PLOT.right;
  const at = (bytes) => PLOT.left + (bytes / most) * inner;
  const ticks = steps(0, most / one, inner / 90).map((tick) => ({ at: at(tick * one), text: tick ? `${tick} ${unit}` : "0" }));
  return { at, ticks, most };
}

function scaleY(points, height) {
  const low = Math.min(1, ...points.map((point) => point.low || point.y));
  const high = Math.max(1.05, ...points.map((point) => point.high || point.y));
  const log = high / low > 4;
  const turn = log ? Math.log : (value) => value;
  const pad = (turn(high) - turn(low)) * 0.07;
  const [from, to] = [turn(low) - pad, turn(high) + pad];
  const inner = height - PLOT.top - PLOT.bottom;
  const at = (ratio) => PLOT.top + (1 - (turn(ratio) - from) / (to - from)) * inner;
  const back = log ? Math.exp : (value) => value;
  const all = log ? LOG_TICKS : steps(back(from), back(to), inner / 52);
  const ticks = all.filter((tick) => tick >= back(from) && tick <= back(to));
  return { at, ticks: ticks.map((tick) => ({ at: at(tick), text: `${tick}×` })), log };
}

function frame(x, y, width, height) {
  const [right, bottom] = [width - PLOT.right, height - PLOT.bottom];
  const lines = x.ticks.map(({ at }) => svg("line", { x1: at, x2: at, y1: PLOT.top, y2: bottom, class: "grid" }));
  const rows = y.ticks.map(({ at }) => svg("line", { x1: PLOT.left, x2: right, y1: at, y2: at, class: "grid" }));
  const under = x.ticks.map(({ at, text }) => svg("text", { x: at, y: bottom + 17, class: "tick middle" }, text));
  const beside = y.ticks.map(({ at, text }) => svg("text", { x: PLOT.left - 7, y: at + 4, class: "tick end" }, text));
  const scale = y.log ? ", log scale" : "";
  return [
    ...lines, ...rows, ...under, ...beside,
    svg("line", { x1: PLOT.left, x2: right, y1: y.at(1), y2: y.at(1), class: "one" }),
    svg("text", { x: 0, y: 11, class: "axis-name" }, `time relative to the plain step${scale}`),
    svg("text", { x: right, y: height - 8, class: "axis-name end" }, "peak memory"),
  ];
}

// Between two points of the frontier the one that needs less memory is the best, so the line has steps.
function drawFrontier(points, name, x, y, width) {
  const on = points.filter((point) => point.line === name);
  if (on.length < (name === "lossy" ? 2 : 1)) return [];
  const [first, ...rest] = on.map((point) => ({ x: x.at(point.x), y: y.at(point.y) }));
  const stairs = rest.map((one) => `H${one.x}V${one.y}`).join("");
  const whole = name === "lossless";
  const path = `M${first.x} ${whole ? PLOT.top : first.y}V${first.y}${stairs}${whole ? `H${width - PLOT.right}` : ""}`;
  return [svg("path", { d: path, class: `frontier ${name}` })];
}

function drawBudget(budget, x, width, height) {
  const bottom = height - PLOT.bottom;
  const at = Math.min(x.at(Math.min(budget.bytes, x.most)), width - PLOT.right);
  const beyond = { x: at, y: PLOT.top, width: width - PLOT.right - at, height: bottom - PLOT.top, class: "beyond" };
  const late = at > width / 2;
  const text = { x: at + (late ? -5 : 5), y: PLOT.top - 5, class: `budget-text${late ? " end" : ""}` };
  return [
    svg("rect", beyond),
    svg("line", { x1: at, x2: at, y1: PLOT.top - 14, y2: bottom, class: "budget" }),
    svg("text", text, late ? `fits in ${budget.text} ◂` : `◂ fits in ${budget.text}`),
  ];
}

function shape(kind, x, y) {
  const name = kind.split(" ")[0];
  const cross = kind.includes("unlawful");
  const outline = {
    plain: `M${x - 5.5} ${y - 5.5}h11v11h-11z`,
    lossy: `M${x} ${y - 7}l7 12.5h-14z`,
    lossless: `M${x - 6} ${y}a6 6 0 1 0 12 0a6 6 0 1 0 -12 0z`,
  }[name];
  const drawn = [svg("path", { d: outline, class: "shape" })];
  if (cross) drawn.push(svg("path", { d: `M${x - 8} ${y - 8}l16 16m0 -16l-16 16`, class: "cross" }));
  return drawn;
}

function look(point, chosen) {
  const own = point.name === chosen ? " chosen" : "";
  return `${point.shape}${point.line ? ` on-${point.line}` : ""}${own}`;
}

function inShort(point) {
  const said = new Map(point.facts);
  const spread = said.get("Quartiles of the ratio");
  return `${point.name}, ${point.words}: ${said.get("Time relative to the plain step")} times the plain step (${spread}), ` +
    `peak ${said.get("Peak memory")}`;
}

// Where points lie on each other, the one that matters most is on top.
function layer(point) {
  return (point.line ? 1 : 0) + (point.shape === "plain" ? 2 : 0);
}

function drawPoint(point, place, y, chosen) {
  const reached = { role: "button", tabindex: "-1", "aria-label": inShort(point) };
  const group = svg("g", { class: `point ${look(point, chosen)}`, ...reached });
  const [top, bottom] = [y.at(point.high || point.y), y.at(point.low || point.y)];
  const caps = `M${place.x} ${top}V${bottom}M${place.x - 4} ${top}h8M${place.x - 4} ${bottom}h8`;
  group.append(svg("path", { d: caps, class: "whisker" }));
  group.append(svg("circle", { cx: place.x, cy: place.y, r: 11, class: "ring" }));
  group.append(...shape(point.shape, place.x, place.y));
  return group;
}

const overlap = (one, other) =>
  Math.max(0, Math.min(one.right, other.right) - Math.max(one.left, other.left)) *
  Math.max(0, Math.min(one.bottom, other.bottom) - Math.max(one.top, other.top));

function spots(place, width) {
  return PLOT.reach.flatMap((reach) => Array.from({ length: 16 }, (_, index) => {
    const angle = (index * Math.PI) / 8;
    const [dx, dy] = [Math.cos(angle), Math.sin(angle)];
    const left = place.x + dx * reach - (width / 2) * (1 - dx);
    const middle = place.y - dy * (reach + 4);
    const cost = reach + (dx < 0 ? 2 : 0) + (dy < 0 ? 1 : 0);
    return { left, right: left + width, top: middle - 8, bottom: middle + 8, reach, cost };
  }));
}

function inside(box, size) {
  const across = box.left >= PLOT.left + 2 && box.right <= size.width - 2;
  return across && box.top >= PLOT.top && box.bottom <= size.height - PLOT.bottom - 1;
}

// The frontiers as thin boxes, which names avoid where they can.
function lineBoxes(points, places, size) {
  return ["lossless", "lossy"].flatMap((name) => {
    const on = places.filter((_, index) => points[index].line === name);
    return on.flatMap((place, index) => {
      const next = on[index + 1] ?? { x: name === "lossless" ? size.width - PLOT.right : place.x, y: place.y };
      const from = index || name === "lossy" ? place.y : PLOT.top;
      return [
        { left: place.x, right: next.x, top: place.y - 2, bottom: place.y + 2 },
        { left: next.x - 2, right: next.x + 2, top: Math.min(place.y, next.y), bottom: Math.max(place.y, next.y) },
        { left: place.x - 2, right: place.x + 2, top: Math.min(from, place.y), bottom: place.y },
      ];
    });
  });
}

function pointBoxes(point, { x, y: middle }, y) {
  const [top, bottom] = [y.at(point.high || point.y), y.at(point.low || point.y)];
  return [
    { left: x - 8, right: x + 8, top: middle - 8, bottom: middle + 8 },
    { left: x - 4, right: x + 4, top, bottom },
  ];
}

function rank(point, chosen) {
  if (point.name === chosen) return 0;
  if (point.shape === "plain") return 1;
  return ["lossless", "lossy", undefined].indexOf(point.line) + 2;
}

// The names that matter most are placed first; a name without room stands in the tooltip and the table only.
function placeLabels(points, places, y, chosen, size) {
  const taken = points.flatMap((point, index) => pointBoxes(point, places[index], y));
  const lines = lineBoxes(points, places, size);
  const found = new Map();
  const order = points.map((_, index) => index).sort((a, b) => rank(points[a], chosen) - rank(points[b], chosen) || a - b);
  for (const index of order) {
    const width = textWidth(points[index].name, 12) * 1.04 + 4;
    const fits = (box) => inside(box, size) && !taken.some((other) => overlap(box, other) > 0);
    const free = spots(places[index], width).filter(fits);
    if (!free.length) continue;
    const cost = (box) => box.cost + (lines.some((line) => overlap(box, line) > 0) ? 30 : 0);
    const best = free.reduce((one, other) => (cost(other) < cost(one) ? other : one));
    taken.push(best);
    found.set(index, best);
  }
  return found;
}

function drawLabel(point, place, box, chosen) {
  const middle = { x: (box.left + box.right) / 2, y: box.bottom - 4 };
  const text = svg("text", { ...middle, class: `name middle ${look(point, chosen)}` }, shorten(point.name));
  if (box.reach < 20) return [text];
  const clamp = (value, low, high) => Math.min(Math.max(value, low), high);
  const end = { x: clamp(place.x, box.left, box.right), y: clamp(place.y, box.top, box.bottom) };
  return [svg("line", { x1: place.x, y1: place.y, x2: end.x, y2: end.y, class: "leader" }), text];
}

// Returns the picture, its points in the order of their peaks, and the place of each.
function drawChart(chart, room, budget, chosen) {
  const points = chart.points.filter((point) => point.x !== undefined);
  const width = Math.min(room, PLOT.most);
  const height = width < 560 ? PLOT.low : PLOT.tall;
  const [x, y] = [scaleX(points, width), scaleY(points, height)];
  const places = points.map((point) => ({ x: x.at(point.x), y: y.at(point.y) }));
  const labels = placeLabels(points, places, y, chosen, { width, height });
  const named = { role: "group", "aria-label": `${chart.title}: time against peak memory` };
  const picture = svg("svg", { viewBox: `0 0 ${width} ${height}`, width, height, ...named });
  const drawn = points.map((point, index) => drawPoint(point, places[index], y, chosen));
  const [beyond, ...limit] = budget.bytes > 0 ? drawBudget(budget, x, width, height) : [""];
  picture.append(beyond, ...frame(x, y, width, height), ...limit);
  for (const name of ["lossy", "lossless"]) picture.append(...drawFrontier(points, name, x, y, width));
  for (const [index, box] of labels) picture.append(...drawLabel(points[index], places[index], box, chosen));
  const layered = points.map((point, index) => [layer(point), drawn[index]]).sort(([a], [b]) => a - b);
  picture.append(...layered.map(([, one]) => one));
  return { picture, points, places, drawn };
}
