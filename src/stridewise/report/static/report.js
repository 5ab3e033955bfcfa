// Draws the data of the page. Names come from untrusted models: they only ever become text nodes.
(() => {
"use strict";

const report = JSON.parse(document.getElementById("data").textContent);
const {vertices, edges, groups, formats, arena} = report;
const COLORS = 10;

// --- elements and words ----------------------------------------------------------------------

const byId = (id) => document.getElementById(id);

function svg(name, attributes, parent, text) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const key in attributes) element.setAttribute(key, attributes[key]);
  if (text !== undefined) element.textContent = text;
  if (parent) parent.append(element);
  return element;
}

function html(name, look, parent, text) {
  const element = document.createElement(name);
  if (look) element.className = look;
  if (text !== undefined) element.textContent = text;
  if (parent) parent.append(element);
  return element;
}

function rounded(value) {
  const size = Math.abs(value);
  return value.toFixed(size < 10 ? 2 : size < 100 ? 1 : 0);
}
const time = (ns) => Math.abs(ns) >= 1e6 ? `${rounded(ns / 1e6)} ms` : `${rounded(ns / 1e3)} µs`;
const signed = (ns) => (ns < 0 ? "−" : "+") + time(Math.abs(ns));
const percent = (part) => part >= 9 ? `${Math.round(1 + part)} x` : `${part < 0 ? "−" : "+"}${Math.abs(100 * part).toFixed(1)} %`;
function size(nbytes) {
  const units = ["B", "kB", "MB", "GB"];
  let unit = 0;
  while (nbytes >= 1000 && unit < 3) { nbytes /= 1000; unit += 1; }
  return `${unit ? rounded(nbytes) : nbytes} ${units[unit]}`;
}
const cut = (text, count) => text.length <= count ? text : `${text.slice(0, count - 1)}…`;
const color = (format) => format === null ? "" : `f${format % COLORS}`;
const opOf = (vertex) => [vertex.op, ...vertex.fused.map((item) => item.split(" ")[0])].join(" + ");
const costOf = (vertex) => vertex.measured_ns ?? vertex.predicted_ns;
const slowest = Math.max(1, ...vertices.map(costOf));

// --- which boxes there are -------------------------------------------------------------------

const groupOf = new Array(vertices.length).fill(null);
groups.forEach((group, index) => {
  for (let i = 0; i < group.length * group.count; i++) groupOf[group.first + i] = index;
});
const folded = new Set(groups.keys());

function visibleBoxes() {
  const boxes = [];
  const boxOf = new Array(vertices.length);
  for (let index = 0; index < vertices.length;) {
    const group = groupOf[index];
    const count = group !== null && folded.has(group) ? groups[group].length * groups[group].count : 1;
    const box = {id: boxes.length, first: index, count, group: count > 1 ? group : null};
    measure(box);
    for (let i = 0; i < count; i++) boxOf[index + i] = box;
    boxes.push(box);
    index += count;
  }
  return {boxes, boxOf};
}

function measure(box) {
  const vertex = vertices[box.first];
  box.cost = 0;
  for (let i = 0; i < box.count; i++) box.cost += costOf(vertices[box.first + i]);
  box.width = box.group !== null ? 236 : vertex.kind === "node" ? 208 : 178;
  if (box.group !== null) box.height = 66;
  else if (vertex.kind === "node") box.height = 42 + 30 * Math.sqrt(box.cost / slowest);
  else box.height = vertex.kind === "reorder" ? 42 : 30;
}

function visibleLinks(boxOf) {
  const known = new Map();
  for (const edge of edges) {
    const from = boxOf[edge.source], to = boxOf[edge.target];
    if (from === to) continue;
    const key = `${from.id} ${to.id} ${edge.format} ${edge.tensor}`;
    if (!known.has(key)) known.set(key, {from, to, edge, via: []});
  }
  return [...known.values()];
}

// --- layers (after Sugiyama, Tagawa and Toda 1981) ---------------------------------------------

const GAP = 26, LAYER_GAP = 26, MOST_BENDS = 30000;

function assignLayers(boxes, links) {
  boxes.forEach((box) => { box.layer = 0; box.above = []; box.below = []; });
  const into = boxes.map(() => []);
  const out = boxes.map(() => []);
  for (const link of links) { into[link.to.id].push(link.from); out[link.from.id].push(link.to); }
  for (const box of boxes) for (const from of into[box.id]) box.layer = Math.max(box.layer, from.layer + 1);
  for (const box of boxes) { // what reads nothing moves down to its first reader
    const readers = out[box.id];
    if (!into[box.id].length && readers.length) box.layer = Math.min(...readers.map((to) => to.layer)) - 1;
  }
}

function bend(boxes, links) {
  const layers = [];
  for (const box of boxes) (layers[box.layer] ??= []).push(box);
  for (let i = 0; i < layers.length; i++) layers[i] ??= [];
  const spans = links.reduce((sum, link) => sum + link.to.layer - link.from.layer - 1, 0);
  for (const link of links) {
    link.via = [];
    let last = link.from;
    for (let layer = link.from.layer + 1; layer < link.to.layer && spans <= MOST_BENDS; layer++) {
      const point = {layer, width: 12, height: 0, above: [], below: [], point: true};
      layers[layer].push(point);
      link.via.push(point);
      join(last, point);
      last = point;
    }
    if (spans <= MOST_BENDS || link.to.layer === link.from.layer + 1) join(last, link.to);
  }
  return layers;
}

function join(upper, lower) { upper.below.push(lower); lower.above.push(upper); }

const mean = (items, key) => items.reduce((sum, item) => sum + item[key], 0) / items.length;

function order(layers) {
  const number = (layer) => layer.forEach((item, index) => { item.order = index; });
  layers.forEach(number);
  const sweep = (layer, side) => {
    for (const item of layer) item.weight = item[side].length ? mean(item[side], "order") : item.order;
    layer.sort((a, b) => a.weight - b.weight);
    number(layer);
  };
  for (let turn = 0; turn < 6; turn++) {
    for (let i = 1; i < layers.length; i++) sweep(layers[i], "above");
    for (let i = layers.length - 2; i >= 0; i--) sweep(layers[i], "below");
  }
  for (let i = 1; i < layers.length; i++) sweep(layers[i], "above");
}

// How much an edge pulls between two boxes, a box and a bend, two bends: columns of boxes are
// straight, and what runs past them gives way, but straight itself. Where an edge is the only one of
// both its boxes it pulls most, so that lines slant only where they part and meet.
const PULL = [1, 0.001, 4];
const ONLY = 12;
const YIELDING = 0.001;

// Places a layer as near as can be to where its items want to be, their order and gaps kept:
// isotonic regression by pooling neighbors that violate the order.
function settle(layer, wish) {
  const pools = [];
  let offset = 0;
  layer.forEach((item, index) => {
    if (index) offset += (layer[index - 1].width + item.width) / 2 + GAP;
    item.offset = offset;
    let pool = {sum: (wish(item) - offset) * item.pull, weight: item.pull, items: [item]};
    while (pools.length && pools.at(-1).sum / pools.at(-1).weight > pool.sum / pool.weight) {
      const before = pools.pop();
      pool = {sum: before.sum + pool.sum, weight: before.weight + pool.weight, items: before.items.concat(pool.items)};
    }
    pools.push(pool);
  });
  for (const pool of pools) for (const item of pool.items) item.x = pool.sum / pool.weight + item.offset;
}

function placeAcross(layers) {
  for (const layer of layers) for (const item of layer) { item.x = 0; item.pull = item.point ? YIELDING : 1; }
  for (const layer of layers) settle(layer, () => 0);
  const near = (item, sides) => {
    let sum = 0, weight = 0;
    for (const side of sides) for (const other of item[side]) {
      const bends = Number(Boolean(item.point)) + Number(Boolean(other.point));
      const back = side === "above" ? "below" : "above";
      const pull = !bends && item[side].length === 1 && other[back].length === 1 ? ONLY : PULL[bends];
      sum += pull * other.x; weight += pull;
    }
    return weight ? sum / weight : item.x;
  };
  const turns = layers.length > 400 ? 8 : 24;
  for (let turn = 0; turn < turns; turn++) {
    for (let i = 1; i < layers.length; i++) settle(layers[i], (item) => near(item, ["above"]));
    for (let i = layers.length - 2; i >= 0; i--) settle(layers[i], (item) => near(item, ["below"]));
  }
  for (let turn = 0; turn < 4; turn++) for (const layer of layers) settle(layer, (item) => near(item, ["above", "below"]));
}

function placeDown(layers) {
  let y = 0;
  for (const layer of layers) {
    const height = Math.max(0, ...layer.map((item) => item.height));
    for (const item of layer) { item.y = y + (height - item.height) / 2; item.top = y; item.bottom = y + height; }
    y += height + LAYER_GAP;
  }
}

function layout() {
  const {boxes, boxOf} = visibleBoxes();
  const links = visibleLinks(boxOf);
  assignLayers(boxes, links);
  const layers = bend(boxes, links);
  order(layers);
  placeAcross(layers);
  placeDown(layers);
  if (!boxes.length) return {boxes, boxOf, links, left: 0, width: 1, height: 1};
  const left = Math.min(...boxes.map((box) => box.x - box.width / 2));
  const right = Math.max(...boxes.map((box) => box.x + box.width / 2)) + 8;
  const bottom = Math.max(...boxes.map((box) => box.y + box.height)) + 8;
  return {boxes, boxOf, links, left, width: right - left, height: bottom};
}

// --- drawing ---------------------------------------------------------------------------------

const drawing = byId("drawing");
const scene = svg("g", {}, drawing);
const overview = svg("g", {class: "overview"}, drawing);
let shape = null;
let selected = null; // a vertex, by index
let focused = 0;
let only = null; // a format, by index
let hits = new Set();

function ports(links, end, other) {
  const at = new Map();
  for (const link of links) {
    if (!at.has(link[end])) at.set(link[end], []);
    at.get(link[end]).push(link);
  }
  for (const [box, list] of at) {
    list.sort((a, b) => other(a).x - other(b).x);
    const step = Math.min(22, box.width * 0.7 / list.length);
    list.forEach((link, index) => { link[`${end}X`] = box.x + (index - (list.length - 1) / 2) * step; });
  }
}

function pathOf(link) {
  let x = link.fromX, y = link.from.y + link.from.height;
  let path = `M${x.toFixed(1)} ${y.toFixed(1)}`;
  const to = (nx, ny) => {
    const middle = (y + ny) / 2;
    path += `C${x.toFixed(1)} ${middle.toFixed(1)} ${nx.toFixed(1)} ${middle.toFixed(1)} ${nx.toFixed(1)} ${ny.toFixed(1)}`;
    x = nx; y = ny;
  };
  for (const point of link.via) {
    to(point.x, point.top);
    path += `V${point.bottom.toFixed(1)}`;
    y = point.bottom;
  }
  to(link.toX, link.to.y);
  return path;
}

function drawLink(link, parent) {
  const path = pathOf(link);
  const look = `edge ${color(link.edge.format)}`;
  link.element = svg("path", {class: look, d: path}, parent);
  const grip = svg("path", {class: "grip", d: path}, parent);
  svg("title", {}, grip, `${link.edge.tensor}: ${formats[link.edge.format].name}`);
  grip.addEventListener("click", () => selectLink(link));
}

function drawBox(box, parent) {
  const vertex = vertices[box.first];
  const group = box.group === null ? null : groups[box.group];
  const kind = group ? "fold" : vertex.kind === "reorder" ? "moves" : vertex.kind === "node" ? "" : "io";
  const idle = !group && vertex.kind === "node" && !vertex.works ? " idle" : "";
  const look = `vertex ${kind}${idle} ${color(vertex.format)}`;
  const left = box.x - box.width / 2;
  const element = svg("g", {class: look, transform: `translate(${left.toFixed(1)} ${box.y.toFixed(1)})`,
    role: "button", tabindex: "-1", "data-vertex": box.first, "aria-label": spoken(box)}, parent);
  element.style.setProperty("--heat", Math.round(75 * Math.min(1, box.cost / box.count / slowest)));
  if (group) drawGroup(box, group, element);
  else if (vertex.kind === "reorder") drawReorder(box, vertex, element);
  else if (vertex.kind === "node") drawNode(box, vertex, element);
  else drawEnd(box, vertex, element);
  svg("title", {}, element, spoken(box));
  element.addEventListener("click", () => activate(box));
  box.element = element;
}

function spoken(box) {
  const vertex = vertices[box.first];
  if (box.group !== null) return `${groupName(groups[box.group])}, ${time(box.cost)}; press to unfold`;
  const format = vertex.format === null ? "" : `, ${formats[vertex.format].name}`;
  return `${opOf(vertex)} ${vertex.name}${format}${vertex.works ? `, ${time(box.cost)}` : ""}`;
}

const groupName = (group) => group.count > 1
  ? `${group.count} × (${group.label})` : `${group.length} nodes: ${group.label}`;

function share(box, part, parent) {
  const width = box.width - 20;
  svg("rect", {class: "track", x: 13, y: box.height - 8, width, height: 3.5, rx: 1.7}, parent);
  svg("rect", {class: "share", x: 13, y: box.height - 8, width: Math.max(0, width * part), height: 3.5, rx: 1.7}, parent);
}

function frameOf(box, parent) {
  svg("rect", {class: "box", width: box.width, height: box.height, rx: 7}, parent);
  svg("path", {class: "stripe", d: `M7 0H6V${box.height}H7A7 7 0 0 1 0 ${box.height - 7}V7A7 7 0 0 1 7 0Z`}, parent);
}

function drawNode(box, vertex, parent) {
  frameOf(box, parent);
  const cost = vertex.works ? time(box.cost) : "view";
  svg("text", {x: 13, y: 16}, parent, cut(opOf(vertex), 29 - cost.length));
  svg("text", {class: "time", x: box.width - 8, y: 16, "text-anchor": "end"}, parent, cost);
  const format = vertex.format === null ? "" : formats[vertex.format].name;
  svg("text", {class: "sub", x: 13, y: 30}, parent, cut(vertex.name, 30 - format.length));
  svg("text", {class: "sub", x: box.width - 8, y: 30, "text-anchor": "end"}, parent, cut(format, 16));
  if (vertex.works) share(box, box.cost / slowest, parent);
}

function drawReorder(box, vertex, parent) {
  const from = vertex.inputs[0].format;
  parent.classList.add(`p${from % COLORS}`);
  svg("rect", {class: "box", width: box.width, height: box.height, rx: 21}, parent);
  svg("circle", {class: "from", cx: 17, cy: 21, r: 6}, parent);
  svg("circle", {class: "to", cx: box.width - 17, cy: 21, r: 6}, parent);
  const middle = {x: box.width / 2, "text-anchor": "middle"};
  svg("text", {...middle, y: 18}, parent, cut(`${formats[from].name} → ${formats[vertex.format].name}`, 24));
  svg("text", {class: "sub", ...middle, y: 32}, parent, `${size(vertex.outputs[0].nbytes)}, ${time(box.cost)}`);
}

function drawEnd(box, vertex, parent) {
  svg("rect", {class: "box", width: box.width, height: box.height, rx: 15}, parent);
  const port = vertex.outputs[0] ?? vertex.inputs[0];
  const format = port.format === null ? "" : ` ${formats[port.format].name}`;
  svg("text", {x: box.width / 2, y: 19, "text-anchor": "middle"}, parent, cut(vertex.name, 26 - format.length) + format);
}

function drawGroup(box, group, parent) {
  for (const step of group.count > 1 ? [8, 4] : [4]) {
    svg("rect", {class: "under", x: step, y: step, width: box.width, height: box.height, rx: 7}, parent);
  }
  frameOf(box, parent);
  const name = group.count > 1 ? `${group.count} ×` : `${group.length} nodes`;
  svg("text", {class: "count", x: 14, y: 21}, parent, name);
  svg("text", {class: "time", x: box.width - 8, y: 19, "text-anchor": "end"}, parent, time(box.cost));
  const words = group.label.split(", ");
  const half = words.length > 2 ? 2 : words.length;
  svg("text", {class: "sub", x: 14, y: 37}, parent, cut(words.slice(0, half).join(", "), 38));
  svg("text", {class: "sub", x: 14, y: 51}, parent, cut(words.slice(half).join(", "), 38));
  let total = 0;
  for (const vertex of vertices) total += costOf(vertex);
  share(box, box.cost / Math.max(total, 1), parent);
}

function frameAround(group) {
  const inside = new Set();
  for (let i = 0; i < group.length * group.count; i++) inside.add(shape.boxOf[group.first + i]);
  const boxes = [...inside];
  const bends = shape.links.flatMap((link) => inside.has(link.from) && inside.has(link.to) ? link.via : []);
  const left = Math.min(...[...boxes, ...bends].map((item) => item.x - item.width / 2)) - 12;
  const right = Math.max(...[...boxes, ...bends].map((item) => item.x + item.width / 2)) + 12;
  const top = Math.min(...boxes.map((box) => box.y)) - 12;
  const bottom = Math.max(...boxes.map((box) => box.y + box.height)) + 12;
  return {left, right, top, bottom};
}

function drawFrames(behind, before) {
  groups.forEach((group, index) => {
    if (folded.has(index)) return;
    const {left, right, top, bottom} = frameAround(group);
    svg("rect", {class: "frame", x: left, y: top, width: right - left, height: bottom - top, rx: 10}, behind);
    const button = svg("g", {class: "refold", transform: `translate(${right - 10} ${top - 11})`, role: "button",
      tabindex: "0", "data-group": index, "aria-label": `Fold ${groupName(group)}`}, before);
    const words = group.count > 1 ? `fold ${group.count} ×` : "fold";
    svg("rect", {width: 14 + 6.4 * words.length, height: 22, rx: 6}, button);
    svg("text", {x: 7, y: 15}, button, words);
    const fold = () => { folded.add(index); redraw(); focusOn(group.first); };
    button.addEventListener("click", fold);
    button.addEventListener("keydown", (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); event.stopPropagation(); fold(); } });
  });
}

function redraw() {
  const anchor = shape ? shape.boxOf[selected ?? focused] : null;
  const before = anchor ? {x: anchor.x * view.k + view.x, y: anchor.y * view.k + view.y} : null;
  shape = layout();
  ports(shape.links, "from", (link) => link.via[0] ?? link.to);
  ports(shape.links, "to", (link) => link.via.at(-1) ?? link.from);
  scene.replaceChildren();
  const frames = svg("g", {}, scene);
  const lines = svg("g", {}, scene);
  for (const link of shape.links) drawLink(link, lines);
  const nodes = svg("g", {}, scene);
  for (const box of shape.boxes) drawBox(box, nodes);
  drawFrames(frames, svg("g", {}, scene));
  drawOverview();
  if (before) { // what one looks at stays where it is
    const box = shape.boxOf[selected ?? focused];
    view.x = before.x - box.x * view.k;
    view.y = before.y - box.y * view.k;
  }
  moved();
  mark();
  byId("unfold").textContent = folded.size ? "Unfold all" : "Fold all";
}

function mark() {
  for (const box of shape.boxes) {
    let shown = only === null, hit = false, chosen = false;
    for (let i = box.first; i < box.first + box.count; i++) {
      shown ||= vertices[i].format === only || vertices[i].inputs.some((port) => port.format === only);
      hit ||= hits.has(i);
      chosen ||= selected === i;
    }
    box.element.classList.toggle("dim", !shown || (hits.size > 0 && !hit));
    box.element.classList.toggle("hit", hit);
    box.element.classList.toggle("chosen", chosen);
    box.element.setAttribute("tabindex", shape.boxOf[focused] === box ? "0" : "-1");
  }
  for (const link of shape.links) {
    link.element.classList.toggle("dim", hits.size > 0 || (only !== null && link.edge.format !== only));
    link.element.classList.toggle("chosen", chosenEdge === link.edge);
  }
  document.querySelectorAll("#table tr.picked").forEach((row) => row.classList.remove("picked"));
  if (selected !== null && rowOf.has(selected)) rowOf.get(selected).classList.add("picked");
}

// --- the view --------------------------------------------------------------------------------

const view = {x: 0, y: 0, k: 1};
const EDGE = 40, MARGIN = 60;

function moved() {
  scene.setAttribute("transform", `translate(${view.x.toFixed(2)} ${view.y.toFixed(2)}) scale(${view.k.toFixed(4)})`);
  placeWindow();
}

function within(x, y) { // keeps a part of the drawing in sight
  const {clientWidth: width, clientHeight: height} = drawing;
  const left = shape.left * view.k, right = (shape.left + shape.width) * view.k;
  return {
    x: Math.min(Math.max(x, MARGIN - right), width - MARGIN - left),
    y: Math.min(Math.max(y, height - EDGE - shape.height * view.k, MARGIN - shape.height * view.k), Math.max(EDGE, height - EDGE - shape.height * view.k)),
  };
}

function pan(dx, dy) {
  const next = within(view.x + dx, view.y + dy);
  const changed = Math.abs(next.x - view.x) + Math.abs(next.y - view.y) > 0.5;
  Object.assign(view, next);
  moved();
  return changed;
}

function zoom(factor, cx = drawing.clientWidth / 2, cy = drawing.clientHeight / 2) {
  const k = Math.min(3, Math.max(0.02, view.k * factor));
  view.x = cx - (cx - view.x) * k / view.k;
  view.y = cy - (cy - view.y) * k / view.k;
  view.k = k;
  moved();
}

function fit(whole) {
  const width = drawing.clientWidth - 2 * EDGE, height = drawing.clientHeight - 2 * EDGE;
  const wide = width / Math.max(shape.width, 1), tall = height / Math.max(shape.height, 1);
  view.k = whole ? Math.min(1.2, wide, tall) : Math.min(1, Math.max(wide, 0.75));
  const first = shape.boxes[0];
  const middle = shape.width * view.k <= width || whole || !first ? shape.left + shape.width / 2 : first.x;
  view.x = drawing.clientWidth / 2 - middle * view.k;
  view.y = EDGE;
  moved();
}

function center(box) {
  view.k = Math.max(view.k, 0.7);
  view.x = drawing.clientWidth / 2 - box.x * view.k;
  view.y = drawing.clientHeight / 2 - (box.y + box.height / 2) * view.k;
  moved();
}

// --- the overview ----------------------------------------------------------------------------

let small = 0;
let sight = null;

function drawOverview() {
  overview.replaceChildren();
  sight = null;
  const room = drawing.clientHeight - 24;
  if (drawing.clientWidth < 560 || shape.height < 1.4 * room) return;
  small = Math.min(room / shape.height, 64 / shape.width);
  overview.setAttribute("transform", `translate(${12 - shape.left * small} 12) scale(${small})`);
  svg("rect", {class: "back", x: shape.left, width: shape.width, height: shape.height, rx: 4 / small}, overview);
  for (const box of shape.boxes) {
    const height = Math.max(box.height, 2 / small), width = Math.max(box.width, 4 / small);
    svg("rect", {class: `mini ${color(vertices[box.first].format)}`, x: box.x - width / 2, y: box.y, width, height}, overview);
  }
  sight = svg("rect", {class: "sight", "stroke-width": 1.5 / small, rx: 2 / small}, overview);
  const pad = svg("rect", {class: "pad", x: shape.left, width: shape.width, height: shape.height}, overview);
  pad.addEventListener("pointerdown", (event) => {
    event.stopPropagation();
    const at = (event.clientY - drawing.getBoundingClientRect().top - 12) / small;
    view.y = drawing.clientHeight / 2 - at * view.k;
    pan(0, 0);
  });
}

function placeWindow() {
  if (!sight) return;
  const clamp = (value, low, high) => Math.min(Math.max(value, low), high);
  const left = clamp(-view.x / view.k, shape.left, shape.left + shape.width);
  const right = clamp((drawing.clientWidth - view.x) / view.k, shape.left, shape.left + shape.width);
  const top = clamp(-view.y / view.k, 0, shape.height);
  const bottom = clamp((drawing.clientHeight - view.y) / view.k, 0, shape.height);
  sight.setAttribute("x", left); sight.setAttribute("width", right - left);
  sight.setAttribute("y", top); sight.setAttribute("height", bottom - top);
}

// --- what is looked at -----------------------------------------------------------------------

let chosenEdge = null;
const details = byId("details");

function activate(box) {
  if (box.group === null) { select(box.first); return; }
  focused = box.first;
  folded.delete(box.group);
  redraw();
}

function reveal(index) {
  const group = groupOf[index];
  if (group !== null && folded.delete(group)) redraw();
}

function select(index) {
  reveal(index);
  selected = focused = index;
  chosenEdge = null;
  mark();
  describe(vertices[index]);
}

function focusOn(index) {
  focused = index;
  mark();
  shape.boxOf[index].element.focus({preventScroll: true});
}

function selectLink(link) {
  selected = null;
  chosenEdge = link.edge;
  mark();
  const edge = link.edge;
  const from = vertices[edge.source], to = vertices[edge.target];
  const port = from.outputs.find((item) => item.name === edge.tensor) ?? from.outputs[0];
  details.replaceChildren();
  html("h3", "", details, edge.tensor);
  const line = html("p", "", details);
  chip(edge.format, line);
  if (port) {
    html("span", "", line, ` ${port.type}, ${size(port.nbytes)}`);
    meaning([port]);
  }
  html("h4", "", details, "from and to");
  const list = html("ul", "", details);
  for (const [vertex, index] of [[from, edge.source], [to, edge.target]]) {
    const button = html("button", "link", html("li", "", list), `${opOf(vertex)} ${vertex.name}`);
    button.type = "button";
    button.addEventListener("click", () => { select(index); center(shape.boxOf[index]); });
  }
}

function chip(format, parent) {
  if (format === null) return html("span", "faint", parent, "packed");
  return html("span", `chip ${color(format)}`, parent, formats[format].name);
}

function row(parent, cells, look) {
  const line = html("tr", look, parent);
  for (const cell of cells) {
    const item = html("td", typeof cell === "object" && cell.number ? "number" : "", line);
    if (typeof cell === "function") cell(item);
    else item.textContent = typeof cell === "object" ? cell.number : cell;
  }
}

function head(parent, titles) {
  const line = html("tr", "", html("thead", "", parent));
  for (const title of titles) {
    const numeric = title.startsWith("#");
    html("th", numeric ? "number" : "", line, numeric ? title.slice(1) : title).scope = "col";
  }
  return html("tbody", "", parent);
}

function describe(vertex) {
  details.replaceChildren();
  details.scrollTop = 0;
  html("h3", "", details, opOf(vertex));
  if (vertex.name) html("p", "faint", details, vertex.name);
  if (vertex.works) times(vertex);
  else html("p", "", details, vertex.kind === "node" ? "A view: no byte moves." : "");
  if (vertex.choices.length) candidates(vertex);
  tensors("reads", vertex.inputs);
  tensors("makes", vertex.outputs);
  meaning(vertex.outputs.length ? vertex.outputs : vertex.inputs);
  if (vertex.fused.length) list("fused into its kernel", vertex.fused);
  if (vertex.regrets.length) regrets(vertex.regrets);
  if (vertex.refusals.length) list("refused", vertex.refusals.map((item) => `${item.rule}: ${item.reason}`));
  const attributes = vertex.attrs.filter(([, value]) => value !== "");
  if (attributes.length) list("attributes", attributes.map(([key, value]) => `${key} = ${value}`));
}

function times(vertex) {
  const line = html("div", "times", details);
  const figure = (name, text) => { html("b", "", html("span", "", line, name), text); };
  figure("predicted", time(vertex.predicted_ns));
  if (vertex.measured_ns === null) return;
  figure("measured", time(vertex.measured_ns));
  if (vertex.predicted_ns) figure("error", percent(vertex.measured_ns / vertex.predicted_ns - 1));
}

function list(title, items) {
  html("h4", "", details, title);
  const parent = html("ul", "", details);
  for (const item of items) html("li", "", parent, item);
}

function candidates(vertex) {
  html("h4", "", details, `candidates (${vertex.choices.length}), the node alone`);
  const table = html("table", "candidates", details);
  const body = head(table, ["kernel", "format", "#cost"]);
  for (const choice of vertex.choices) {
    const from = [...new Set(choice.inputs.filter((item) => item !== null))];
    const to = [...new Set(choice.outputs)];
    row(body, [
      (cell) => {
        cell.textContent = (choice.chosen ? "✓ " : "") + choice.algorithm;
        html("div", "faint", cell, `${choice.implementation}; ${choice.source}`);
      },
      (cell) => {
        if (from.length && String(from) !== String(to)) { from.forEach((item) => chip(item, cell)); cell.append(" → "); }
        to.forEach((item) => chip(item, cell));
      },
      {number: time(choice.cost_ns)},
    ], choice.chosen ? "best" : "rejected");
  }
}

function tensors(title, items) {
  if (!items.length) return;
  html("h4", "", details, title);
  const body = html("tbody", "", html("table", "", details));
  for (const item of items) {
    row(body, [
      (cell) => { cell.textContent = item.name; html("div", "faint", cell, item.type); },
      (cell) => chip(item.format, cell),
      {number: item.nbytes ? size(item.nbytes) : "constant"},
    ]);
  }
}

function meaning(items) {
  const known = items.filter((item) => item.provenance);
  if (known.length) list("what its axes mean", known.map((item) => item.origin ? `${item.origin}, ${item.provenance}` : item.provenance));
}

function regrets(rows) {
  html("h4", "", details, "another format here would cost");
  const body = head(html("table", "", details), ["format", "#in all", "#kernels", "#reorders"]);
  for (const item of rows) {
    row(body, [item.format, {number: signed(item.total_ns)}, {number: signed(item.kernel_ns)}, {number: signed(item.reorder_ns)}]);
  }
}

// --- moving with the pointer and with keys -----------------------------------------------------

const pointers = new Map();
let travelled = 0;

drawing.addEventListener("pointerdown", (event) => {
  pointers.set(event.pointerId, {x: event.clientX, y: event.clientY});
  travelled = 0;
});
drawing.addEventListener("pointermove", (event) => {
  const last = pointers.get(event.pointerId);
  if (!last) return;
  const now = {x: event.clientX, y: event.clientY};
  if (pointers.size === 2) {
    const [other] = [...pointers].filter(([id]) => id !== event.pointerId).map(([, at]) => at);
    const box = drawing.getBoundingClientRect();
    const distance = (at) => Math.hypot(at.x - other.x, at.y - other.y);
    zoom(distance(now) / Math.max(distance(last), 1), (now.x + other.x) / 2 - box.left, (now.y + other.y) / 2 - box.top);
  } else {
    travelled += Math.abs(now.x - last.x) + Math.abs(now.y - last.y);
    if (travelled > 4 && !drawing.classList.contains("dragging")) {
      drawing.classList.add("dragging");
      drawing.setPointerCapture(event.pointerId); // not before: a captured click reaches no node
    }
    pan(now.x - last.x, now.y - last.y);
  }
  pointers.set(event.pointerId, now);
});
for (const name of ["pointerup", "pointercancel", "pointerleave"]) {
  drawing.addEventListener(name, (event) => {
    pointers.delete(event.pointerId);
    drawing.classList.remove("dragging");
  });
}
drawing.addEventListener("click", (event) => {
  if (travelled > 4) { event.stopPropagation(); event.preventDefault(); }
}, true);
drawing.addEventListener("wheel", (event) => {
  const box = drawing.getBoundingClientRect();
  if (event.ctrlKey || event.metaKey) {
    event.preventDefault();
    zoom(Math.exp(-event.deltaY / 300), event.clientX - box.left, event.clientY - box.top);
  } else if (pan(-event.deltaX, -event.deltaY)) event.preventDefault(); // at the end, the page scrolls
}, {passive: false});

function step(direction) {
  const box = shape.boxes[shape.boxOf[focused].id + direction];
  if (!box) return;
  focusOn(box.first);
  const y = box.y * view.k + view.y, x = box.x * view.k + view.x;
  const outside = y < EDGE || y + box.height * view.k > drawing.clientHeight - EDGE || x < EDGE || x > drawing.clientWidth - EDGE;
  if (outside) center(box);
}

const KEYS = {
  ArrowDown: () => step(1), ArrowUp: () => step(-1), ArrowRight: () => step(1), ArrowLeft: () => step(-1),
  "+": () => zoom(1.25), "=": () => zoom(1.25), "-": () => zoom(0.8), "0": () => fit(true),
  Enter: () => { activate(shape.boxOf[focused]); focusOn(focused); },
  " ": () => { activate(shape.boxOf[focused]); focusOn(focused); },
};
drawing.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || !KEYS[event.key]) return;
  event.preventDefault();
  KEYS[event.key]();
});

// --- the toolbar -----------------------------------------------------------------------------

formats.forEach((format, index) => {
  if (!format.tensors) return;
  const button = html("button", color(index), byId("legend"));
  button.type = "button";
  button.setAttribute("aria-pressed", "false");
  html("i", "", button);
  html("span", "", button, format.name);
  html("span", "faint", button, String(format.tensors));
  button.addEventListener("click", () => {
    only = only === index ? null : index;
    for (const other of byId("legend").children) other.setAttribute("aria-pressed", String(other === button && only !== null));
    mark();
  });
});
byId("heat").addEventListener("click", () => {
  const hot = drawing.classList.toggle("hot");
  byId("heat").setAttribute("aria-pressed", String(hot));
});
if (!groups.length) byId("unfold").hidden = true;
byId("unfold").addEventListener("click", () => {
  if (folded.size) folded.clear();
  else groups.forEach((_, index) => folded.add(index));
  redraw();
});
byId("zoom-in").addEventListener("click", () => zoom(1.25));
byId("zoom-out").addEventListener("click", () => zoom(0.8));
byId("zoom-fit").addEventListener("click", () => fit(true));

const haystack = vertices.map((vertex) =>
  [vertex.name, opOf(vertex), vertex.op, ...vertex.outputs.map((port) => port.name)].join("\n").toLowerCase());
let cursor = -1;

byId("search").addEventListener("input", (event) => {
  const wanted = event.target.value.trim().toLowerCase();
  hits = new Set(wanted ? haystack.flatMap((text, index) => text.includes(wanted) ? [index] : []) : []);
  cursor = -1;
  byId("found").textContent = wanted ? `${hits.size} found` : "";
  mark();
});
byId("search").addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || !hits.size) return;
  event.preventDefault();
  const all = [...hits];
  cursor = (cursor + (event.shiftKey ? all.length - 1 : 1)) % all.length;
  select(all[cursor]);
  center(shape.boxOf[all[cursor]]);
  byId("found").textContent = `${cursor + 1} of ${all.length}`;
});

// --- the table -------------------------------------------------------------------------------

const body = document.querySelector("#table tbody");
const rows = [...body.rows];
const rowOf = new Map(rows.map((item) => [Number(item.dataset.vertex), item]));

document.querySelectorAll("#table thead th").forEach((title, column) => {
  title.firstElementChild.addEventListener("click", () => {
    const numeric = title.classList.contains("number");
    const descending = title.ariaSort ? title.ariaSort === "ascending" : numeric && column > 0;
    document.querySelectorAll("#table thead th").forEach((other) => other.removeAttribute("aria-sort"));
    title.setAttribute("aria-sort", descending ? "descending" : "ascending");
    const key = (item) => numeric ? Number(item.cells[column].dataset.key) : item.cells[column].textContent.trim();
    const keyed = rows.map((item) => [key(item), item]);
    keyed.sort(([a], [b]) => numeric ? a - b : a.localeCompare(b));
    if (descending) keyed.reverse();
    body.append(...keyed.map(([, item]) => item));
  });
});
body.addEventListener("click", (event) => {
  const button = event.target.closest("button");
  if (!button) return;
  const index = Number(button.closest("tr").dataset.vertex);
  select(index);
  center(shape.boxOf[index]);
  byId("graph").scrollIntoView();
});
byId("filter").addEventListener("input", (event) => {
  const wanted = event.target.value.trim().toLowerCase();
  for (const item of rows) item.hidden = !item.textContent.toLowerCase().includes(wanted);
});

// --- the arena -------------------------------------------------------------------------------

const chart = {left: 66, top: 22, bottom: 34, height: 400};

function drawArena() {
  const element = byId("arena");
  if (!element) return;
  element.replaceChildren();
  const steps = Math.max(arena.steps.length, 1);
  const width = Math.max(element.parentElement.clientWidth, chart.left + 12 + 3 * steps);
  element.setAttribute("width", width);
  element.setAttribute("height", chart.height);
  const across = (width - chart.left - 12) / steps;
  const bottom = chart.height - chart.bottom, room = bottom - chart.top;
  const most = Math.max(arena.nbytes, 1);
  const y = (address) => bottom - address / most * room;
  axes(element, {width, across, bottom, steps, most, y});
  arena.blocks.forEach((block, index) => drawBlock(element, block, index, across, y));
  const bound = y(arena.lower_bound_nbytes);
  svg("line", {class: "bound", x1: chart.left, x2: width - 12, y1: bound, y2: bound}, element);
  svg("text", {class: "boundary", x: width - 14, y: bound - 5, "text-anchor": "end"}, element, `lower bound ${size(arena.lower_bound_nbytes)}`);
}

function axes(element, {width, across, bottom, steps, most, y}) {
  const power = 10 ** Math.floor(Math.log10(most / 4));
  const unit = [1, 2, 5, 10].map((factor) => factor * power).find((value) => most / value <= 6) ?? most;
  for (let address = 0; address <= most; address += Math.max(unit, 1)) {
    svg("line", {class: "grid", x1: chart.left, x2: width - 12, y1: y(address), y2: y(address)}, element);
    svg("text", {x: chart.left - 8, y: y(address) + 4, "text-anchor": "end"}, element, size(address));
  }
  const every = Math.max(1, Math.ceil(steps / 12));
  for (let at = 0; at < steps; at += every) {
    svg("text", {x: chart.left + (at + 0.5) * across, y: bottom + 15, "text-anchor": "middle"}, element, at + 1);
  }
  svg("text", {x: (chart.left + width) / 2, y: bottom + 30, "text-anchor": "middle"}, element, "step");
}

function drawBlock(element, block, index, across, y) {
  const scratch = block.format === null;
  const width = (block.last - block.first + 1) * across;
  const top = y(block.offset + block.nbytes), height = Math.max(y(block.offset) - top, 1);
  const left = chart.left + block.first * across;
  const look = scratch ? "block scratch" : `block f${index % COLORS}${index % (2 * COLORS) < COLORS ? "" : " second"}`;
  const item = svg("rect", {class: look, x: left, y: top, width, height, "data-block": index}, element);
  const what = scratch ? `scratchpad of ${block.names[0]}` : block.names.join(", ");
  const words = `${what}: ${size(block.nbytes)} at ${size(block.offset)}, steps ${block.first + 1} to ${block.last + 1}`;
  svg("title", {}, item, words);
  const letters = Math.floor((width - 8) / 6.4);
  if (!scratch && letters > 4 && height > 15) {
    svg("text", {class: "name", x: left + 4, y: top + Math.min(height / 2 + 4, 16)}, element, cut(block.names[0].replace(/ \([^)]*\)$/, ""), letters));
  }
  item.addEventListener("pointerenter", () => { byId("block").textContent = words; });
  item.addEventListener("click", () => {
    element.querySelectorAll(".chosen").forEach((other) => other.classList.remove("chosen"));
    item.classList.add("chosen");
    byId("block").textContent = words;
    if (block.vertex === null) return;
    byId("block").append(" ");
    const link = html("button", "link", byId("block"), "Show in the graph");
    link.type = "button";
    link.addEventListener("click", () => {
      select(block.vertex);
      center(shape.boxOf[block.vertex]);
      byId("graph").scrollIntoView();
    });
  });
}

// --- beginning -------------------------------------------------------------------------------

redraw();
fit(false);
drawArena();
let width = window.innerWidth;
window.addEventListener("resize", () => {
  if (window.innerWidth === width) return; // phones resize in height when their bars slide away
  width = window.innerWidth;
  drawArena();
  drawOverview();
  pan(0, 0);
});
})();
