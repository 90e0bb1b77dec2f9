// What the pages do in the browser: fetch a page again when its events say so, show a live tail, sign in by a link.
// No text from a stream is ever taken as HTML: rows are built of text nodes.

const base = document.documentElement.dataset.base;

// --- times and copies ------------------------------------------------------------------------------
// The server writes times in UTC. A browser that wants its own zone writes them anew, also in what it fetches later.

document.documentElement.classList.add("scripted");
const ZONE = "shardway-zone";
const zoneButton = document.getElementById("zone");
let local = kept() === "local";

function kept() {
  try { return localStorage.getItem(ZONE); } catch { return null; } // a browser may forbid it
}

function localText(at) {
  const two = (number) => String(number).padStart(2, "0");
  const off = -at.getTimezoneOffset();
  const zone = `${off < 0 ? "-" : "+"}${two(Math.floor(Math.abs(off) / 60))}:${two(Math.abs(off) % 60)}`;
  return `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())} ${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())} ${zone}`;
}

function writeTimes(root) {
  for (const one of root.querySelectorAll("time[datetime]")) {
    const at = new Date(one.dateTime);
    if (Number.isNaN(at.getTime())) continue;
    const text = local ? localText(at) : one.dateTime;
    if (one.textContent !== text) one.textContent = text;
    if (local) one.title = one.dateTime; else one.removeAttribute("title");
  }
}

function writeZone() {
  if (zoneButton) zoneButton.textContent = local ? "Times here" : "Times in UTC";
  zoneButton?.setAttribute("title", local ? "show times in UTC" : "show times in this browser's zone");
  writeTimes(document);
}

zoneButton?.addEventListener("click", () => {
  local = !local;
  try { localStorage.setItem(ZONE, local ? "local" : "utc"); } catch { /* it holds for this page */ }
  writeZone();
});
writeZone();

document.addEventListener("click", async (event) => {
  const button = event.target.closest?.("button[data-copy], button[data-copies]");
  if (!button) return;
  const text = button.dataset.copy ?? document.getElementById(button.dataset.copies)?.textContent ?? "";
  const before = button.textContent;
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = "copied";
  } catch {
    button.textContent = "not copied: select it by hand";
  }
  setTimeout(() => { button.textContent = before; }, 1500);
});

// --- pages that are refreshed ----------------------------------------------------------------------

const QUIET_MS = 20_000; // no event for so long: a proxy holds them back, or the connection is gone
const POLL_MS = 10_000;

function livePage(query) {
  const state = document.getElementById("live-state");
  let source = null;
  let timer = 0;
  let poll = 0;
  let fetching = false;

  const say = (text) => { if (state && state.textContent !== text) state.textContent = text; };

  const heard = () => {
    clearTimeout(timer);
    clearInterval(poll);
    poll = 0;
    say("refreshed by itself");
    timer = setTimeout(fallBack, QUIET_MS);
  };

  const fallBack = () => {
    if (poll || !source) return;
    say("events do not come through (a proxy may hold them back): the page is fetched every 10 s");
    poll = setInterval(refresh, POLL_MS);
  };

  async function refresh() {
    if (fetching) return;
    fetching = true;
    try {
      const answer = await fetch(location.href, { headers: { Accept: "text/html" }, redirect: "manual" });
      if (answer.type === "opaqueredirect" || answer.status === 401) { say("your session has ended: sign in again"); stop(); return; }
      if (answer.ok) replaceParts(new DOMParser().parseFromString(await answer.text(), "text/html"));
    } catch {
      say("the console does not answer");
    } finally {
      fetching = false;
    }
  }

  function start() {
    if (source) return;
    source = new EventSource(`${base}/live?${query}`);
    source.addEventListener("beat", heard);
    source.addEventListener("changed", () => { heard(); refresh(); });
    timer = setTimeout(fallBack, QUIET_MS);
  }

  function stop() {
    source?.close();
    source = null;
    clearTimeout(timer);
    clearInterval(poll);
    poll = 0;
  }

  // A page that is not seen holds nothing: what it shows is not looked at for it.
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) stop(); else { start(); refresh(); }
  });
  addEventListener("pagehide", stop);
  if (!document.hidden) start();
}

function replaceParts(fresh) {
  writeTimes(fresh);
  for (const part of document.querySelectorAll("[data-part]")) {
    const other = fresh.querySelector(`[data-part="${part.dataset.part}"]`);
    if (!other || other.innerHTML === part.innerHTML) continue;
    const selection = getSelection();
    if (selection && !selection.isCollapsed && part.contains(selection.anchorNode)) continue; // text is being copied
    const focused = part.contains(document.activeElement) ? placeOf(part, document.activeElement) : -1;
    const open = [...part.querySelectorAll("details")].map((one) => one.open);
    const scrolled = [...part.querySelectorAll(".scroll")].map((one) => [one.scrollLeft, one.scrollTop]);
    part.replaceChildren(...document.importNode(other, true).childNodes);
    [...part.querySelectorAll("details")].forEach((one, at) => { one.open = open[at] ?? one.open; });
    [...part.querySelectorAll(".scroll")].forEach((one, at) => { if (scrolled[at]) one.scrollTo(...scrolled[at]); });
    if (focused >= 0) focusable(part)[focused]?.focus({ preventScroll: true });
  }
}

const focusable = (part) => [...part.querySelectorAll("a[href], button, input, select, summary, [tabindex]")];
const placeOf = (part, element) => focusable(part).indexOf(element);

// --- a live tail -----------------------------------------------------------------------------------

const ROWS_MAX = 300;

function liveTail(events, record, records) {
  const body = document.getElementById("tail-rows");
  const told = document.getElementById("tail-told");
  const state = document.getElementById("tail-state");
  const button = document.getElementById("tail-pause");
  const browser = crypto.randomUUID();
  let source = null;
  let paused = false;
  let events_came = false;
  let short = false; // connections of a few seconds, for a proxy that gives an answer out when it has ended
  let timer = 0;
  let newest = ""; // when the newest record arrived that is shown

  function address() {
    const mark = events.includes("?") ? "&" : "?";
    return `${events}${mark}browser=${browser}${short ? "&for=2" : ""}`;
  }

  function start() {
    if (source || paused) return;
    source = new EventSource(address());
    state.textContent = short ? "follows, in steps: a proxy holds events back" : "follows";
    clearTimeout(timer);
    timer = setTimeout(() => { if (!events_came) { short = true; stop(); start(); } }, 8000);
    source.addEventListener("rows", (event) => {
      events_came = true;
      show(JSON.parse(event.data));
    });
    source.onerror = () => {
      if (source && source.readyState === EventSource.CLOSED) state.textContent = "ended: the console refused, or your session is over";
      else if (!short) state.textContent = "connects again";
    };
  }

  function stop() {
    source?.close();
    source = null;
    clearTimeout(timer);
  }

  function show(news) {
    const seen = news.seen.toLocaleString("en");
    told.textContent = `${seen} seen, ${news.matched.toLocaleString("en")} chosen` + (news.lost ? `, ${news.lost.toLocaleString("en")} came too fast to be shown` : "");
    if (news.fault) { state.textContent = `ended: ${news.fault}`; stop(); }
    else if (!short) state.textContent = news.note ? `follows; ${news.note}` : "follows";
    if (news.anew && newest) body.prepend(gapRow()); // the page slept, or was cut off, for too long
    if (news.rows.length) newest = news.rows.at(-1).arrived_at;
    const rows = news.rows.slice(-ROWS_MAX).map(tailRow).reverse();
    body.prepend(...rows);
    if (local) writeTimes(body);
    while (body.rows.length > ROWS_MAX) body.lastElementChild.remove();
  }

  function gapRow() {
    const row = document.createElement("tr");
    const made = row.insertCell();
    made.colSpan = 6;
    const link = document.createElement("a");
    link.href = `${records}${records.includes("?") ? "&" : "?"}${new URLSearchParams({ from: newest })}`;
    link.textContent = `Browse from ${newest} on.`;
    made.append("What came while nothing was followed is not shown here. ", link);
    return row;
  }

  function tailRow(one) {
    const row = document.createElement("tr");
    row.className = "new";
    const link = document.createElement("a");
    const query = new URLSearchParams({ shard: one.shard_id, seq: one.sequence_number });
    if (one.sub_sequence_number !== null) query.set("sub", one.sub_sequence_number);
    link.href = `${record}?${query}`;
    const arrived = document.createElement("time");
    arrived.dateTime = arrived.textContent = one.arrived_at;
    link.append(arrived);
    cell(row, link, "nowrap");
    cell(row, one.shard_id.replace(/^shardId-0*(?=.)/, ""), "number");
    cell(row, one.key, "mono");
    cell(row, (one.via ? `${one.via} > ` : "") + one.kind, "nowrap");
    cell(row, one.size.toLocaleString("en"), "number");
    cell(row, one.text + (one.cut ? " …" : ""), "data");
    return row;
  }

  function cell(row, content, kind) {
    const made = row.insertCell();
    made.className = kind;
    made.append(content);
  }

  button.addEventListener("click", () => {
    paused = !paused;
    button.textContent = paused ? "Go on" : "Pause";
    button.setAttribute("aria-pressed", String(paused));
    if (paused) { stop(); state.textContent = "paused"; } else start();
  });
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) { stop(); if (!paused) state.textContent = "sleeps"; } else start();
  });
  addEventListener("pagehide", stop);
  start();
}

// --- signing in by a link --------------------------------------------------------------------------

function launch(form) {
  const token = location.hash.slice(1);
  history.replaceState(null, "", location.pathname);
  if (!token) return;
  form.elements.token.value = token;
  form.submit();
}

// --- all pages -------------------------------------------------------------------------------------

const page = document.body.dataset;
if (page.live) livePage(page.live);
if (page.events) liveTail(page.events, page.record, page.records);
const launching = document.getElementById("launch");
if (launching) launch(launching);

document.addEventListener("keydown", (event) => {
  if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.closest("input, select, textarea")) return;
  const search = document.querySelector("[data-search]");
  if (search) { event.preventDefault(); search.focus(); search.select(); }
});
