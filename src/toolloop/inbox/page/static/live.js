// Keeps an open page up to date. Everything else works without it.
"use strict";
(() => {
  const live = document.getElementById("live");
  if (!live || !window.EventSource) return;
  const said = document.getElementById("said");
  const page = live.dataset.page || location.href; // a refused form is shown at its own address, which does not accept GET
  let running = Promise.resolve();

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

  const source = new EventSource(live.dataset.events);
  source.addEventListener("change", () => { running = running.then(refresh, refresh); });
  window.addEventListener("pagehide", () => source.close());
  document.documentElement.dataset.live = "";
})();
