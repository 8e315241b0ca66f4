// Keeps an open page up to date. Everything else works without it.
"use strict";
(() => {
  const live = document.getElementById("live");
  if (!live) return;
  const said = document.getElementById("said");
  const page = live.dataset.page || location.href; // a refused form is shown at its own address, which does not accept GET

  async function refresh() {
    const answer = await fetch(page);
    if (!answer.ok) return location.assign(page);
    const found = new DOMParser().parseFromString(await answer.text(), "text/html");
    const fresh = found.getElementById("live");
    if (!fresh) return location.assign(page);
    const focused = document.activeElement, top = window.scrollY;
    const here = new Map([...live.querySelectorAll("[data-key]")].map((each) => [each.dataset.key, each]));
    // Unchanged elements are kept, with typed text and open details.
    for (const there of fresh.querySelectorAll("[data-key]")) {
      const old = here.get(there.dataset.key);
      if (old && old.dataset.version === there.dataset.version) there.replaceWith(old);
    }
    live.replaceChildren(...fresh.childNodes);
    document.title = found.title;
    if (focused && focused.isConnected) focused.focus({ preventScroll: true });
    else if (focused && focused.matches("input, textarea, select")) said.textContent = "The call you were deciding has changed or was decided.";
    window.scrollTo(0, top);
  }

  const SOON = 1000, LATER = 10000, LONG = 300000; // milliseconds: between two questions, also after LONG without a change
  let version = live.dataset.version, changed = Date.now(), timer;

  async function ask() {
    clearTimeout(timer);
    if (document.hidden) return;
    try {
      const address = new URL(live.dataset.changes, location.href);
      address.searchParams.set("since", version);
      const answer = await fetch(address);
      if (answer.status === 200) {
        version = (await answer.json()).v;
        changed = Date.now();
        await refresh();
      } else if (answer.status === 403) said.textContent = "You are no longer signed in. Reload the page.";
    } catch { /* the server cannot be reached: the next question may */ }
    clearTimeout(timer);
    timer = setTimeout(ask, Date.now() - changed > LONG ? LATER : SOON);
  }

  document.addEventListener("visibilitychange", ask);
  timer = setTimeout(ask, SOON);
  document.documentElement.dataset.live = "";
})();
