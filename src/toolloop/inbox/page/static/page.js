// Keys, focus, local times and live marks. Everything else works without this file: rows and panels are links, forms are POSTs.
"use strict";
(() => {
  const ARMED = 500; // ms: a call takes no decision in the first half second after it is shown, so that a double click decides one call
  const ASK = 1000, SELDOM = 10000, LONG = 300000; // ms: between two questions for changes, also after LONG without one
  const LINE = 20; // px: two stretches of an input that were on the screen overlap by about a line
  const $ = (what, where = document) => where.querySelector(what), all = (what, where = document) => [...where.querySelectorAll(what)];
  const { base, version: live, me, loop } = document.body.dataset;
  const reader = $("#reader"), line = $("#line"), news = $("#news"), join = $("#join");
  const isWide = () => innerWidth >= 960;
  const say = (text) => { const said = $("#said"); if (said) said.textContent = text; };
  const make = (tag, values, ...inside) => { const made = Object.assign(document.createElement(tag), values); made.append(...inside); return made; };
  const read = async (answer) => new DOMParser().parseFromString(await answer.text(), "text/html");

  // --- the call in focus ---
  let shownAt = performance.now(), busy = false, seen = [], height = 0;
  const article = () => $(".call[data-call]");
  const shown = () => article()?.dataset.call;
  const heading = () => $("#heading");
  const rows = () => all("[data-calls]");
  const keysOf = (row) => row.dataset.calls.split(" ");
  const rowOf = (key) => rows().find((row) => keysOf(row).includes(key));
  const states = new Map(); // key -> the words of a call that needs nothing any more
  const order = () => rows().flatMap(keysOf);
  const panel = () => $(".bar .panel:not([hidden])");
  const addressOf = (key) => `${base}/?${new URLSearchParams([...new URLSearchParams(document.body.dataset.query), ["call", key]])}`;
  function following(by, skip) {
    const keys = order(), at = keys.indexOf(shown());
    for (let to = at + by; keys[to]; to += by) if (!skip || !states.has(keys[to])) return keys[to];
    return null;
  }
  function place() { // rows stay where they are; only the mark of the current one moves
    const key = shown(), keys = order(), at = keys.indexOf(key);
    for (const row of rows()) {
      const is = keysOf(row).includes(key);
      if (is) row.setAttribute("aria-current", "true"); else row.removeAttribute("aria-current");
      if (row.matches("a")) row.tabIndex = is || (at < 0 && row === rows()[0]) ? 0 : -1;
      if (is && reader && isWide()) row.scrollIntoView({ block: "nearest" });
    }
    if (reader && keys.length) {
      $("#place").textContent = at < 0 ? "" : `${at + 1} of ${keys.length}`;
      for (const [name, by] of [["#previous", -1], ["#next", 1], ["#go-on", 1]]) { const link = $(name), to = following(by, name === "#go-on"); if (link) { if (to) link.href = addressOf(to); else link.removeAttribute("href"); } }
    }
  }
  function swap(page, focus) {
    reader.replaceChildren(...$("#reader", page).childNodes);
    const done = $("#said").dataset;
    if (done.done) mark(done.done, done.tag, done.words, done.over === "1");
    scrollTo(0, 0);
    [shownAt, seen, height] = [performance.now(), [], 0];
    localize(reader); place(); look();
    const at = $("[autofocus]:not(#heading)", reader) || heading();
    if (focus && at) at.focus({ preventScroll: at === heading() });
  }
  async function show(key) {
    if (!key || busy) return;
    busy = true;
    try {
      const answer = await fetch(addressOf(key)), page = await read(answer);
      if (!$("#reader", page)) return location.assign(answer.url);
      swap(page, true);
      history.replaceState(null, "", addressOf(key));
    } catch { say("The server cannot be reached."); } finally { busy = false; }
  }
  const step = (by) => { const key = following(by); if (key) show(key); else say(by > 0 ? "That was the last call of this list." : "This is the first call of this list."); };

  // --- a decision ---
  async function send(form, button) {
    const data = new URLSearchParams(new FormData(form, button)), key = shown();
    if (data.has("next")) data.set("next", following(1, true) || order().find((each) => each !== key && !states.has(each)) || "");
    busy = true;
    article().setAttribute("aria-busy", "true");
    say("Deciding…");
    try {
      const answer = await fetch(form.action, { method: "POST", body: data }), page = await read(answer);
      if (!$("#reader", page)) return say(`Not sent: ${($(".note", page) || $("main", page) || page.body).textContent.trim()}`);
      swap(page, true);
      if (answer.redirected) history.replaceState(null, "", answer.url.replace(/&?done=[^&]*/, ""));
      document.title = page.title;
    } catch { say("The server did not answer. Look whether the call still waits before you send it again."); } finally {
      busy = false;
      article()?.removeAttribute("aria-busy");
      ask();
    }
  }
  const isEarly = () => performance.now() - shownAt < ARMED;
  async function open(name) {
    let form = $(`.bar #${name}`);
    if (!form) {
      const key = shown(), page = await read(await fetch(`${$(`[data-do=${name}]`).href}`)).catch(() => null);
      form = page && $(`.bar #${name}`, page);
      if (!form || key !== shown()) return form || say("The server cannot be reached.");
      $(".bar > .moves").before(form);
    }
    for (const each of all(".bar > form")) each.hidden = each !== form;
    const field = $("input:not([type=hidden]), textarea, select", form) || $("button", form);
    $(".bar").scrollIntoView({ block: "end" });
    field.focus({ preventScroll: form.offsetHeight < innerHeight / 2 });
  }
  function close() {
    const form = panel();
    if (!form || !$(".bar > .moves")) return;
    form.hidden = true;
    $(".bar > .moves").hidden = false;
    heading().focus({ preventScroll: true });
  }

  // --- what of the input has been on the screen ---
  function look() {
    const input = $(".call .input"), bar = $(".bar"), strip = $(".strip");
    if (!input || !bar || document.hidden) return;
    const box = input.getBoundingClientRect(), top = $(".said")?.getBoundingClientRect().bottom ?? 0;
    const whole = box.height - parseFloat(getComputedStyle(input).paddingBottom);
    if (Math.abs(whole - height) > 1) [seen, height] = [[], whole];
    const end = Math.min(innerHeight, bar.getBoundingClientRect().top, strip?.getBoundingClientRect().top ?? innerHeight);
    let [from, to] = [Math.max(0, top - box.top), Math.min(whole, end - box.top)];
    if (to <= from) return;
    const apart = seen.filter(([a, b]) => b < from + LINE || a > to - LINE);
    for (const [a, b] of seen.filter((each) => !apart.includes(each))) [from, to] = [Math.min(a, from), Math.max(b, to)];
    seen = [...apart, [from, to]];
  }
  const isRead = () => { look(); return !$(".call .input") || seen.some(([from, to]) => from < 2 && to > height - 2); };
  const isInView = (each) => { const box = each.getBoundingClientRect(); return box.width > 0 && box.top >= 0 && box.bottom <= innerHeight + 1; };

  // --- keys, outside of fields ---
  const press = (name, far) => { const on = $(`.bar > .moves:not([hidden]) [data-do=${name}]`); if (on) open(name); else say(far || "This call does not take that."); };
  const go = (what) => { const link = $(what); if (link?.href) location.assign(link.href); };
  function approve() {
    const button = $(".bar > .moves:not([hidden]) > .approve");
    if (!button) return say(panel() ? "A form is open: Esc closes it." : "You cannot approve this call here.");
    if (!isInView(button)) return say("Not yet: there is more below. Space scrolls.");
    if (!isRead()) return say("Not yet: a part of the input has not been on the screen. Shift+Space scrolls back.");
    button.click();
  }
  const acts = {
    j: () => step(1), k: () => step(-1), o: () => go("#loop"), u: () => go("#back"), a: approve, ".": () => join && !join.hidden && join.click(),
    g: () => { const row = rowOf(shown()), link = $("#group") || (row && keysOf(row).length > 1 ? row : null); if (link) location.assign(link.href); else say("No other call is like this one."); },
    d: () => press("deny"), e: () => press("edit"), w: () => press("answer"), r: () => press("rerun", "This call has not run."),
    "/": () => $("input[type=search]")?.focus(), "?": () => $("#keys")?.showModal(),
  };
  const on = $("#keys-on"); // WCAG 2.1.4: single keys can be turned off
  const usesKeys = () => !on || on.checked;
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && panel() && !$("dialog[open]")) return close();
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey) && panel()) return event.preventDefault(), event.repeat || $(".go > button", panel()).click();
    if (["ArrowDown", "ArrowUp"].includes(event.key) && event.target.matches(".row")) {
      const near = rows()[rows().indexOf(event.target) + (event.key === "ArrowDown" ? 1 : -1)];
      return event.preventDefault(), near?.focus();
    }
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, textarea, select, dialog")) return;
    if (event.repeat && event.target.closest(".bar") && ["Enter", " "].includes(event.key)) return event.preventDefault();
    if (!reader || event.repeat || !usesKeys() || !Object.hasOwn(acts, event.key)) return;
    event.preventDefault();
    if (busy) return say("Deciding…");
    acts[event.key]();
  });

  // --- the pointer ---
  document.addEventListener("click", (event) => {
    const link = event.target.closest("a, button"), isPlain = event.button === 0 && !event.ctrlKey && !event.metaKey && !event.shiftKey;
    if (!link || !isPlain) return;
    const inBar = link.closest(".bar"), decides = inBar && link.matches("button, [data-do]");
    if (decides && (busy || isEarly())) {
      event.preventDefault(); event.stopPropagation();
      return say(busy ? "Deciding…" : "This click came too soon after a new call appeared. It was ignored.");
    }
    if (!reader) return;
    if (inBar && link.dataset.do) return event.preventDefault(), open(link.dataset.do);
    if (inBar && link.matches(".cancel")) return event.preventDefault(), close();
    if (link.matches("#next, #previous, #go-on")) return event.preventDefault(), step(link.id === "previous" ? -1 : 1);
    if (link.matches(".row[data-calls]") && isWide() && keysOf(link).length === 1) return event.preventDefault(), show(link.dataset.calls);
  }, true);
  document.addEventListener("submit", (event) => {
    if (!event.submitter?.closest(".bar") && !event.target.closest(".bar")) return;
    if (busy || isEarly()) return event.preventDefault(), say(busy ? "Deciding…" : "This came too soon after a new call appeared. It was ignored.");
    if (!reader) { busy = true; return; } // the browser sends it; a second click does not
    event.preventDefault();
    send(event.target, event.submitter || $(".go > button", event.target));
  });

  // --- changes: marks in place, never moves ---
  const WORDS = { approved: ["go", "approved"], denied: ["no", "denied"], answered: ["go", "answered"], rerun: ["go", "run again"], expired: ["no", "expired"], closed: ["", "closed"], gone: ["", "deleted"] };
  let version = live, changedAt = performance.now(), timer = 0, isLive = true, fresh = 0, offset = Date.now() / 1000 - Number(document.body.dataset.now || Date.now() / 1000);
  const now = () => Date.now() / 1000 - offset; // the server's clock
  function mark(key, kind, words, isOver = true) {
    if (states.get(key) === words) return;
    if (isOver) states.set(key, words);
    const row = rowOf(key);
    if (!row) return;
    const keys = keysOf(row), over = keys.filter((each) => states.has(each)).length, when = $(".when, .result", row), box = $("input[type=checkbox]", row);
    if (box) { [box.checked, box.disabled] = [false, true]; count(); } // on the page of a group
    if (keys.length === over) row.classList.add("over");
    when.replaceChildren(make("span", { className: `tag ${keys.length > 1 ? "" : kind}`, textContent: keys.length > 1 ? `${over} of ${keys.length} decided` : words }));
    title();
  }
  const title = () => { if (!reader || !live) return; const left = order().filter((key) => !states.has(key)).length + fresh, of = document.title.replace(/^\(\d+\) /, ""); document.title = left ? `(${left}) ${of}` : of; };
  function markReader(kind, words, rest) {
    const tool = $(".tool", heading()).textContent, where = $("#loop")?.textContent || "";
    say(`${tool} in ${where}: ${words} just now. ${rest}`);
    if (panel()) return; // what is typed stays; the server answers by what stands
    const runs = $("#runs"), bar = $(".bar");
    if (runs) runs.textContent = kind === "go" ? "This is what was approved" : "This did not run";
    const next = make("a", { className: "button end", id: "go-on" }, "Next", make("kbd", { ariaHidden: "true", textContent: "j" }));
    bar.replaceChildren(make("div", { className: "moves" }, make("p", { id: "stands" }, make("span", { className: `tag ${kind}`, textContent: words }), ` just now. ${rest} There is nothing left to decide.`), next));
    place();
  }
  function settle(key, kind, words, rest = "") {
    if (states.has(key)) return;
    mark(key, kind, words);
    if (key === shown() && !busy && $(".bar > .moves:not(div)")) markReader(kind, words, rest);
  }
  function apply(changes) {
    [version, offset] = [changes.v, Date.now() / 1000 - changes.now];
    for (const [key, { state, by, digest, approvals }] of Object.entries(changes.calls)) {
      if (state !== "waiting") {
        const [kind, words] = WORDS[state];
        settle(key, kind, by ? `${words} by ${by === me ? "you" : by}` : words, state === "expired" ? "It did not run." : "");
      } else if (key === shown() && article().dataset.digest && digest !== article().dataset.digest) say("This call has changed since. Open it again to see how it is now.");
      else if (key === shown() && article().dataset.given && String(approvals) !== article().dataset.given) say("Another person has approved this call since. Open it again to see what is missing.");
    }
    fresh = changes.new;
    if (join) { join.hidden = !fresh && !loop; join.textContent = loop ? "Changed: show" : `${fresh} new: show`; if (!join.hidden && !loop) join.append(make("kbd", { ariaHidden: "true", textContent: "." })); }
    title();
  }
  const DOT = () => make("span", { className: isLive ? "dot" : "dot off" });
  const tell = () => line?.replaceChildren(DOT(), isLive ? "Live" : "Offline");
  async function ask() {
    clearTimeout(timer);
    if (!live || document.hidden) return;
    let wait = performance.now() - changedAt > LONG ? SELDOM : ASK;
    try {
      const query = new URLSearchParams(document.body.dataset.query);
      query.set("since", version);
      if (loop) query.set("loop", decodeURIComponent(loop));
      query.set("calls", [...new Set([...order(), ...(shown() ? [shown()] : [])])].join(" "));
      const answer = await fetch(`${base}/changes?${query}`);
      if (answer.status === 200) { changedAt = performance.now(); apply(await answer.json()); }
      if (!answer.ok) throw new Error(answer.status);
      if (!isLive) { isLive = true; tell(); if (news) news.textContent = "Up to date again"; }
    } catch {
      if (isLive) { isLive = false; tell(); if (news) news.textContent = `Not up to date since ${clock(new Date())}. Trying again in 5 s.`; }
      wait = 5 * ASK;
    }
    clearTimeout(timer);
    timer = setTimeout(ask, wait);
  }
  async function renew() { // new calls join, and the order changes, only when a person asks for it
    try {
      const page = await read(await fetch(location.href));
      version = page.body.dataset.version;
      if (loop) {
        const typed = all("main textarea, main input:not([type=hidden])").map((each) => [each.id, each.value]);
        $("main").replaceChildren(...$("main", page).childNodes);
        for (const [id, value] of typed) if (document.getElementById(id)) document.getElementById(id).value = value;
      } else {
        const [here, there] = [$(".queue"), $(".queue", page)];
        const lists = (where) => all(":scope > :is(h2, ol, .none)", where), views = $(".views", here);
        for (const each of lists(here)) each.remove();
        here.append(...lists(there));
        views.replaceWith($(".views", there));
        news.textContent = "The new calls are in the list";
        states.clear();
      }
      document.title = page.title;
      fresh = 0; join.hidden = true;
      localize(document); place(); title();
    } catch { news.textContent = "The server cannot be reached."; }
  }
  join?.addEventListener("click", renew);
  document.addEventListener("visibilitychange", ask);

  // --- times: local, and counting down by the server's clock ---
  const clock = (date) => date.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });
  function localize(where) {
    for (const time of all("time[data-time], time[data-date]", where)) { const date = new Date(time.dateTime); time.textContent = "time" in time.dataset ? clock(date) : `${date.toLocaleDateString()} ${clock(date)}`; }
  }
  const lasts = (left) => left >= 172800 ? `${Math.floor(left / 86400)} days` : left >= 3600 ? `${Math.floor(left / 3600)} h${Math.floor(left % 3600 / 60) ? ` ${Math.floor(left % 3600 / 60)} min` : ""}` : left >= 120 ? `${Math.floor(left / 60)} min` : `${Math.max(1, Math.floor(left))} s`;
  function tick() {
    for (const time of all("time[data-until]")) {
      const left = Number(time.dataset.until) - now(), row = time.closest("[data-calls]"), inCall = !row && time.closest(".call[data-call]");
      if (!time.dataset.until) continue;
      const text = left > 0 ? `${lasts(left)} left` : "expired";
      if (time.textContent !== text) time.textContent = text;
      time.className = left < 300 ? "soon" : left < 900 ? "near" : "";
      if (inCall) for (const mark of [300, 60]) if (left < mark && left > mark - 1) say(`${lasts(left)} left for this call.`);
      if (left > 0) continue;
      delete time.dataset.until;
      for (const key of row ? keysOf(row) : inCall ? [shown()] : []) settle(key, "no", "expired", "It did not run.");
    }
  }

  // --- the page of a group: the button says how many ---
  function count() {
    const some = all(".members input:checked").length;
    for (const cell of all("[data-sum]")) cell.textContent = Number(all(".members tbody tr").filter((row) => $("input:checked", row)).reduce((sum, row) => sum + Number(row.children[cell.dataset.sum].textContent), 0).toFixed(6));
    for (const button of all("[data-many]")) { button.firstChild.textContent = button.dataset.many.replace("{}", some === 1 ? "1 call" : `${some} calls`); button.disabled = !some; }
  }
  document.addEventListener("change", (event) => { if (event.target.closest(".members")) count(); if (event.target.matches(".filters select")) event.target.form.requestSubmit(); });
  addEventListener("scroll", look, { passive: true });
  addEventListener("resize", look);
  addEventListener("pageshow", (event) => { if (event.persisted) [busy, shownAt] = [false, performance.now()]; });
  if (on) {
    on.checked = localStorage.getItem("keys") !== "off";
    on.addEventListener("change", () => localStorage.setItem("keys", on.checked ? "on" : "off"));
    $("#show-keys").hidden = false;
    $("#show-keys").addEventListener("click", () => $("#keys").showModal());
  }
  localize(document); place(); look(); tick();
  if (live) { tell(); timer = setTimeout(ask, ASK); }
  setInterval(tick, 1000);
})();
