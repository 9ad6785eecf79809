// Drawing: the reward curve and the lanes of the idle ledger, as SVG. Every text is set as text, never as markup.

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

export function drawRewards(host, rewards) {
  if (!rewards.length) {
    host.replaceChildren(element("p", { class: "none" }, "The first update has not been published yet."));
    return;
  }
  const width = Math.max(host.clientWidth, 300), height = 240;
  const left = 44, right = 12, top = 10, bottom = 26;
  const lows = rewards.map((r) => r.mean - r.spread), highs = rewards.map((r) => r.mean + r.spread);
  const low = Math.min(0, ...lows), high = Math.max(1, ...highs);
  const first = rewards[0].batch, last = Math.max(rewards.at(-1).batch, first + 1);
  const x = (batch) => left + ((batch - first) / (last - first)) * (width - left - right);
  const y = (value) => top + ((high - value) / (high - low)) * (height - top - bottom);
  const points = (values) => rewards.map((r, i) => `${x(r.batch).toFixed(1)},${y(values[i]).toFixed(1)}`);
  const drawing = svg("svg", { viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" });
  for (let step = 0; step <= 4; step++) {
    const value = low + ((high - low) * step) / 4;
    drawing.append(svg("line", { class: "grid", x1: left, x2: width - right, y1: y(value), y2: y(value) }));
    drawing.append(svg("text", { x: left - 8, y: y(value) + 4, "text-anchor": "end" }, value.toFixed(2)));
  }
  const ticks = [...new Set([0, 1, 2, 3, 4].map((i) => Math.round(first + ((last - first) * i) / 4)))];
  for (const batch of ticks) {
    const anchor = batch === last ? "end" : batch === first ? "start" : "middle";
    drawing.append(svg("text", { x: x(batch), y: height - 6, "text-anchor": anchor }, String(batch)));
  }
  const band = [...points(highs), ...points(lows).reverse()].join(" ");
  drawing.append(svg("polygon", { class: "band", points: band }));
  drawing.append(svg("polyline", { class: "line", points: points(rewards.map((r) => r.mean)).join(" ") }));
  for (const r of rewards) {
    const said = `update ${r.batch}: ${r.mean.toFixed(3)} ± ${r.spread.toFixed(3)} over ${r.num_groups} groups`;
    drawing.append(svg("circle", { class: "dot", cx: x(r.batch), cy: y(r.mean), r: rewards.length > 80 ? 2 : 3 }, svg("title", {}, said)));
  }
  host.replaceChildren(drawing);
  const newest = rewards.at(-1);
  host.setAttribute("aria-label", `Reward by update: ${rewards[0].mean.toFixed(2)} at first, ${newest.mean.toFixed(2)} at update ${newest.batch}`);
}

export function drawLanes(host, machines, intervals, now) {
  const rows = machines.map((machine) => lane(machine, intervals.filter((i) => i.machine === machine.name), now));
  const axis = element("div", { class: "axis", "aria-hidden": "true" }, element("span"),
    element("div", {}, element("span", {}, "2 min ago"), element("span", {}, "1 min ago"), element("span", {}, "now")), element("span"));
  host.replaceChildren(...rows, axis);
}

function lane(machine, intervals, now) {
  const begin = now - LANE_WINDOW_MS;
  const closed = intervals.filter((i) => i.end > begin);
  const spans = [...closed];
  // The interval still open: it ends now. A machine that is silent says nothing about now.
  if (machine.open_state && machine.is_healthy) {
    const start = Math.max(machine.open_since ?? now, ...closed.map((i) => i.end));
    spans.push({ state: machine.open_state, cause: machine.open_cause, start, end: now });
  }
  const bars = spans.filter((s) => s.end > s.start).map((s) => {
    const from = Math.max(s.start, begin);
    const said = `${describe(s.state, s.cause)}, ${((s.end - s.start) / 1000).toFixed(1)} s`;
    return svg("rect", {
      x: (((from - begin) / LANE_WINDOW_MS) * 1000).toFixed(2), width: (((s.end - from) / LANE_WINDOW_MS) * 1000).toFixed(2),
      height: 10, style: `fill: var(--${s.state})`,
    }, svg("title", {}, said));
  });
  const said = machine.is_healthy ? describe(machine.open_state || "unknown", machine.open_cause) : "no heartbeats";
  const drawing = svg("svg", { viewBox: "0 0 1000 10", preserveAspectRatio: "none", role: "img", "aria-label": `${machine.name}: now ${said}` }, ...bars);
  return element("div", { class: "lane" }, element("span", { class: "name", title: machine.name }, machine.name), drawing,
    element("span", { class: "now", title: said }, said));
}

export function drawLegend(host) {
  host.replaceChildren(...Object.entries(STATES).map(([state, said]) =>
    element("span", {}, element("span", { class: "swatch", style: `background: var(--${state})` }), said)));
}
