// Drawing: the reward curve and the lanes of the idle ledger, as SVG. Every text is set as text, never as markup.

import { decimal, duration, integer } from "./format.js";

const SVG = "http://www.w3.org/2000/svg";
export const LANE_WINDOW_MS = 120_000;
const STATES = {
  serving: "serving", training: "training", running_agents: "running agents", starting: "starting",
  switching: "switching", syncing: "syncing", draining: "draining", idle: "idle", unknown: "unknown", down: "down",
};
const CAUSES = {
  no_job: "no job", no_requests: "no requests", no_batch: "no full batch", no_groups: "no groups to run",
  awaiting_orders: "awaiting orders", awaiting_weights: "awaiting weights", cordoned: "cordoned",
};

export function element(name, attributes = {}, ...children) {
  return fill(document.createElement(name), attributes, children);
}

function svg(name, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, name), attributes, children);
}

function fill(node, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.append(...children);
  return node;
}

export function describe(state, cause) {
  return cause ? `${STATES[state] ?? state}: ${CAUSES[cause] ?? cause}` : (STATES[state] ?? state);
}

// The round values from low to high, two to six of them.
function roundTicks(low, high) {
  const rough = Math.max(high - low, 1e-6) / 5, unit = 10 ** Math.floor(Math.log10(rough));
  const step = unit * [1, 2, 2.5, 5, 10].find((factor) => unit * factor >= rough);
  const first = Math.ceil(low / step - 1e-9), last = Math.floor(high / step + 1e-9);
  return Array.from({ length: last - first + 1 }, (_, i) => (first + i) * step);
}

export function drawRewards(host, rewards) {
  if (!rewards.length) {
    host.replaceChildren(element("p", { class: "none" }, "The first update has not been published yet."));
    return;
  }
  const width = Math.max(host.clientWidth, 300), height = 240;
  const left = 44, right = 12, top = 10, bottom = 26;
  const lows = rewards.map((r) => r.mean - r.spread), highs = rewards.map((r) => r.mean + r.spread);
  const low = Math.min(...lows), high = Math.max(...highs, low + 0.01);
  const levels = roundTicks(low, high);
  const first = rewards[0].batch, last = Math.max(rewards.at(-1).batch, first + 1);
  const x = (batch) => left + ((batch - first) / (last - first)) * (width - left - right);
  const y = (value) => top + ((high - value) / (high - low)) * (height - top - bottom);
  const points = (values) => rewards.map((r, i) => `${x(r.batch).toFixed(1)},${y(values[i]).toFixed(1)}`);
  const drawing = svg("svg", { viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" });
  const digits = high - low < 0.4 ? 3 : high - low < 10 ? 2 : 0;
  for (const value of levels) {
    drawing.append(svg("line", { class: "grid", x1: left, x2: width - right, y1: y(value), y2: y(value) }));
    drawing.append(svg("text", { x: left - 8, y: y(value) + 4, "text-anchor": "end" }, decimal(value, digits)));
  }
  for (const batch of updateTicks(first, last, width)) {
    const anchor = batch === last ? "end" : batch === first ? "start" : "middle";
    drawing.append(svg("text", { x: x(batch), y: height - 6, "text-anchor": anchor }, integer(batch)));
  }
  const band = [...points(highs), ...points(lows).reverse()].join(" ");
  drawing.append(svg("polygon", { class: "band", points: band }));
  drawing.append(svg("polyline", { class: "line", points: points(rewards.map((r) => r.mean)).join(" ") }));
  for (const r of rewards) {
    const said = `update ${r.batch}: ${decimal(r.mean)} ± ${decimal(r.spread)} over ${r.num_groups} groups`;
    drawing.append(svg("circle", { class: "dot", cx: x(r.batch), cy: y(r.mean), r: rewards.length > 80 ? 2 : 3 }, svg("title", {}, said)));
  }
  host.replaceChildren(drawing);
  const newest = rewards.at(-1);
  host.setAttribute("aria-label", `Reward by update: ${decimal(rewards[0].mean, 2)} at first, ${decimal(newest.mean, 2)} at update ${newest.batch}`);
}

// The first update, the last, and round ones between that stay clear of both.
function updateTicks(first, last, width) {
  const clear = ((last - first) / width) * 60;
  const between = roundTicks(first, last).filter((tick) => Number.isInteger(tick) && tick - first > clear && last - tick > clear);
  return [first, ...between, last];
}

export function drawLanes(host, machines, intervals, now) {
  const rows = machines.map((machine) => lane(machine, intervals.filter((i) => i.machine === machine.name), now));
  const axis = element("div", { class: "axis", "aria-hidden": "true" }, element("span"),
    element("div", {}, element("span", {}, "2 min ago"), element("span", {}, "1 min ago"), element("span", {}, "now")), element("span", {}, "Now"), element("span", {}, "In two minutes"));
  host.replaceChildren(...rows, axis);
}

function lane(machine, intervals, now) {
  const begin = now - LANE_WINDOW_MS;
  const spans = joined([...intervals.filter((i) => i.end > begin)].sort((a, b) => a.start - b.start));
  // The interval still open: it ends now. A machine that is silent says nothing about now.
  if (machine.open_state && machine.is_healthy) {
    const start = Math.max(machine.open_since ?? now, begin, spans.at(-1)?.end ?? 0);
    spans.push({ state: machine.open_state, cause: machine.open_cause, start, end: now });
  }
  const place = (ms) => ((ms - begin) / LANE_WINDOW_MS) * 1000;
  const bars = spans.filter((s) => s.end > s.start).map((s) => {
    const from = place(Math.max(s.start, begin));
    const said = `${describe(s.state, s.cause)}, ${duration(s.end - s.start)}`;
    return svg("rect", { x: from.toFixed(2), width: (place(s.end) - from).toFixed(2), height: 10, style: `fill: var(--${s.state})` }, svg("title", {}, said));
  });
  const present = machine.is_healthy ? describe(machine.open_state || "unknown", machine.open_cause) : "no heartbeats";
  const label = `${machine.name}: now ${present}; ${idleShares(spans, begin)}`;
  const drawing = svg("svg", { viewBox: "0 0 1000 10", preserveAspectRatio: "none", role: "img", "aria-label": label, "shape-rendering": "crispEdges" }, ...bars);
  return element("div", { class: "lane" }, element("span", { class: "name", title: machine.name }, machine.name), drawing,
    element("span", { class: "now", title: present }, present), element("span", { class: "now" }, idleShares(spans, begin)));
}

// Machines report in pieces: neighbours that say the same are one bar.
function joined(intervals) {
  const spans = [];
  for (const interval of intervals) {
    const previous = spans.at(-1);
    const isSame = previous && previous.state === interval.state && previous.cause === interval.cause;
    if (isSame && interval.start - previous.end < 50) previous.end = interval.end;
    else spans.push({ ...interval });
  }
  return spans;
}

function idleShares(spans, begin) {
  let seen = 0, idle = 0;
  const causes = {};
  for (const span of spans) {
    const length = span.end - Math.max(span.start, begin);
    seen += length;
    if (span.state === "idle") {
      idle += length;
      causes[span.cause] = (causes[span.cause] ?? 0) + length;
    }
  }
  if (!seen) return "";
  const [cause] = Object.entries(causes).sort((a, b) => b[1] - a[1])[0] ?? [];
  return `idle ${Math.round((100 * idle) / seen)} %${cause ? `, mostly ${CAUSES[cause] ?? cause}` : ""}`;
}

export function drawLegend(host) {
  host.replaceChildren(...Object.entries(STATES).map(([state, said]) =>
    element("span", {}, element("span", { class: "swatch", style: `background: var(--${state})` }), said)));
}
