// Asks /status once a second and shows it. What cannot be known is shown as
// unknown; when nobody answers, everything is grey and says since when.
import { Plot } from "./plot.js";

const every = 1000, span = 5 * 60000;
const $ = id => document.getElementById(id);

const number = n => n.toLocaleString("en", { maximumFractionDigits: n < 10 ? 1 : 0 });
const bytes = n => {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let i = 0;
  while (n >= 1024 && i < units.length - 1) { n /= 1024; i++; }
  return `${number(n)} ${units[i]}`;
};
const rows = n => `${number(n)} ${n === 1 ? "row" : "rows"}`;
const seconds = s => {
  if (s === 0) return "0 s";
  if (s < 1) return `${number(s * 1000)} ms`;
  if (s < 120) return `${number(s)} s`;
  if (s < 7200) return `${Math.round(s / 60)} min`;
  return s < 172800 ? `${number(s / 3600)} h` : `${number(s / 86400)} days`;
};
const known = (value, format) => value === null || value === undefined ? "unknown" : format(value);
const ago = (now, time) => `${seconds(Math.max(0, Math.round((now - Date.parse(time)) / 1000)))} ago`;

const stageColors = ["--one", "--two", "--three"], stageNames = ["received", "published", "confirmed"];
const plots = {
  rate: new Plot($("plot-rate"), { span, format: number, colors: ["--one"], names: ["rows a second"] }),
  bytes: new Plot($("plot-bytes"), { span, format: bytes, base: 1024, colors: stageColors, names: stageNames }),
  seconds: new Plot($("plot-seconds"), { span, format: seconds, colors: stageColors, names: stageNames }),
  latency: new Plot($("plot-latency"), { span, format: seconds, colors: ["--one"], names: ["mean"], nothing: "no commit" }),
};

function element(tag, text, className) {
  const e = document.createElement(tag);
  e.textContent = text;
  if (className) e.className = className;
  return e;
}

// set changes a text only when it is another: a screen reader tells changes.
function set(id, text) {
  if ($(id).textContent !== text) $(id).textContent = text;
}

function facts(id, pairs) {
  $(id).replaceChildren(...pairs.flatMap(([name, value]) =>
    [element("dt", name), element("dd", value, value === "unknown" ? "unknown" : "")]));
}

function showVerdict(s) {
  const grade = s.state === "refused" || !s.healthy ? "bad"
    : s.state === "standby" || s.state === "snapshot" || s.state === "streaming" && !s.reason && !s.slot_health.error ? "good" : "warn";
  $("verdict").className = grade;
  set("state", s.healthy || s.state === "refused" ? s.state : `${s.state}, unhealthy`);
  set("reason", s.reason ?? "");
  set("remedy", s.remedy ?? "");
  document.title = `${s.state} · ${s.pipeline}`;
}

// showStages says of each step what has come to it, and what waits before it.
function showStages(s) {
  const lag = s.lag_bytes, between = lag.confirmed === null ? null : lag.confirmed - lag.published;
  const streaming = s.state === "streaming" || s.state === "draining";
  const slow = stage => s.lag_seconds[stage] >= 1; // what is under way for less is no wait
  const steps = [
    ["In the server's WAL", "server", streaming || s.positions.server === "0/0" ? "" : "as last seen", false],
    ["Received", "received", lag.received === null ? null : lag.received === 0 ? "nothing waits" : `${bytes(lag.received)} not sent yet`, slow("received")],
    ["Published in Kafka", "published", !streaming ? null : s.in_flight_events === 0 ? "nothing waits"
      : `${rows(s.in_flight_events)}, ${bytes(s.in_flight_bytes)} of at most ${bytes(s.max_in_flight_bytes)}, not acknowledged yet`, s.in_flight_events > 0 && slow("published")],
    ["Confirmed to PostgreSQL", "confirmed", between === null ? null : between === 0 ? "nothing waits"
      : `${bytes(between)} without a durable checkpoint yet`, between > 0 && slow("confirmed")],
  ];
  $("stages").replaceChildren(...steps.map(([title, name, waits, busy]) => {
    const li = element("li", "", busy ? "waits" : "");
    li.append(element("b", title), element("code", s.positions[name] === "0/0" ? "not known yet" : s.positions[name]),
      element("p", waits ?? (streaming ? "unknown: the slot cannot be read" : "not streaming"), waits === null ? "unknown" : ""));
    return li;
  }));
}

function showSlot(s) {
  const h = s.slot_health;
  const rows = [["name", s.slot], ["wal_status", h.wal_status || "unknown"],
    ["WAL kept for it", known(h.retained_bytes, bytes)],
    ["read", h.read_at && !h.error ? ago(Date.parse(s.now), h.read_at) : "unknown"]];
  if (h.error) rows.push(["error", h.error]);
  facts("slot-facts", rows);
  const limited = h.safe_wal_size !== undefined && h.retained_bytes !== undefined;
  $("budget").hidden = !limited;
  if (limited) {
    const left = Math.max(0, h.safe_wal_size), whole = Math.max(1, left + h.retained_bytes), meter = $("budget-meter");
    Object.assign(meter, { low: 0.2, high: 0.5, optimum: 1, value: left / whole });
    set("budget-text", `${bytes(left)} more may be written before the slot can be lost`);
  }
  set("slot-remedy", h.remedy ?? "");
  $("slot-remedy").hidden = !h.remedy;
}

// showSnapshot says how far it is. What is left is the planner's guess, and may be off.
function showSnapshot(s) {
  const n = s.snapshot;
  $("snapshot").hidden = !n;
  if (!n) return;
  if (n.rows_estimated > 0) $("snapshot-bar").setAttribute("value", Math.min(1, n.rows / n.rows_estimated));
  else $("snapshot-bar").removeAttribute("value");
  facts("snapshot-facts", [["published", rows(n.rows)], ["in the tables, by their statistics", known(n.rows_estimated, rows)],
    ["rows a second", number(n.rows_per_second)], ["remaining", known(n.remaining_seconds, seconds)],
    ["left to the stream", rows(n.rows_left_to_stream)]]);
}

function showRetention(s) {
  const r = s.retention, now = Date.parse(s.now);
  $("retention").hidden = !r;
  if (!r) return;
  const list = [["rows deleted", number(r.rows_deleted)], ["rows stamped", number(r.rows_stamped)], ["partitions dropped", number(r.partitions_dropped)],
    ["oldest row", r.oldest_row ? ago(now, r.oldest_row) : "unknown"], ["last pass", r.passed_at ? ago(now, r.passed_at) : "none yet"]];
  if (r.waits) list.push(["waits", r.waits]);
  if (r.error) list.push([`error, ${ago(now, r.error_at)}`, r.error]);
  facts("retention-facts", list);
}

function showErrors(s) {
  const now = Date.parse(s.now);
  const items = s.errors.map(e => {
    const li = element("li", "");
    const when = e.now ? `now, since ${ago(now, e.first)}` : ago(now, e.last);
    li.append(element("p", e.message), element("p", when + (e.times > 1 ? `, ${number(e.times)} times since ${ago(now, e.first)}` : ""), e.now ? "now" : "soft"));
    return li;
  });
  $("error-list").replaceChildren(...(items.length ? items : [element("li", "Nothing since the process began.", "soft")]));
}

let before = null;

function showPlots(s) {
  const at = Date.now(), past = before && before.events <= s.events ? before : null;
  const took = past ? (Date.parse(s.now) - Date.parse(past.now)) / 1000 : 0;
  const rate = took > 0 ? (s.events - past.events) / took : null;
  const count = past ? s.commit_to_ack.count - past.commit_to_ack.count : 0;
  const mean = count > 0 ? (s.commit_to_ack.seconds - past.commit_to_ack.seconds) / count : null;
  plots.rate.add(at, [rate]);
  plots.bytes.add(at, stageNames.map(n => s.lag_bytes[n]));
  plots.seconds.add(at, stageNames.map(n => s.lag_seconds[n]));
  plots.latency.add(at, [mean]);
  set("rate", known(rate, number));
  set("lag-bytes", known(s.lag_bytes.confirmed, bytes));
  set("lag-seconds", known(s.lag_seconds.confirmed, seconds));
  set("latency", mean === null ? "no commit" : seconds(mean));
  before = s;
}

function show(s) {
  set("pipeline", s.pipeline);
  set("about", `version ${s.version}, ${s.delivery}, ${s.state} since ${new Date(s.since).toLocaleString()}`);
  showVerdict(s);
  showStages(s);
  showPlots(s);
  showSlot(s);
  showSnapshot(s);
  showRetention(s);
  const restarts = Object.entries(s.restarts).map(([reason, n]) => `${reason} ${number(n)}`).join(", ");
  facts("count-facts", [["rows", number(s.events)], ["bytes", bytes(s.event_bytes)], ["PostgreSQL transactions", number(s.transactions)],
    ["Kafka transactions", number(s.kafka_commits)], ["split transactions", number(s.split_transactions)], ["starts after an error", restarts || "none"]]);
  showErrors(s);
}

let answered = null; // when, by our clock

// stale says that what stands on the page is no longer known, and why.
function stale(text) {
  document.body.classList.add("stale");
  $("stale").hidden = false;
  set("stale", text);
  document.title = "no answer · walstream";
  before = null;
  for (const plot of Object.values(plots)) plot.add(Date.now(), plot.names.map(() => null));
}

async function answer() {
  const response = await fetch("status", { cache: "no-store", signal: AbortSignal.timeout(5000) });
  if (!response.ok) throw new Error(`it answers ${response.status}`);
  return response.json();
}

async function ask() {
  let s = null;
  try {
    s = await answer();
  } catch (e) {
    stale(answered ? `No answer since ${answered.toLocaleTimeString()} (${e.message}). What stands below is of that moment.`
      : `No answer yet (${e.message}).`);
  }
  if (s !== null) {
    try {
      show(s);
      answered = new Date();
      document.body.classList.remove("stale");
      $("stale").hidden = true;
    } catch (e) {
      stale(`This page cannot show the answer, /status has it: ${e.message}.`);
    }
  }
  setTimeout(ask, every);
}
ask();
