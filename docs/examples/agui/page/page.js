// A chat over AG-UI. The address holds the thread, so a reload and another browser show the same conversation.
import { HttpAgent } from "./ag-ui-client.js";

const find = (id) => document.getElementById(id);
const thread = location.hash.slice(1) || crypto.randomUUID();
history.replaceState(null, "", `#${thread}`);
addEventListener("hashchange", () => location.reload());
find("new").addEventListener("click", (event) => {
  event.preventDefault();
  location.hash = crypto.randomUUID();
});

// What this page can do for the model. The server takes only names that it knows.
const tools = [{ name: "get_time_zone", description: "the time zone of the user", parameters: { type: "object", properties: {} } }];
const run = { get_time_zone: () => Intl.DateTimeFormat().resolvedOptions().timeZone };

const agent = new HttpAgent({ url: new URL("agent/", document.baseURI).href, threadId: thread });
let pending = []; // calls of tools of this page
let problem = "";
agent.subscribe({
  onMessagesChanged: showMessages,
  onEvent: showMessages,
  onRunErrorEvent: ({ event }) => void (problem = event.message),
  onRunFinishedEvent: ({ event }) => void (pending = event.outcome?.pendingToolCallIds ?? []),
});

// Run to the next pause, and answer calls of tools of this page until there are none.
async function go(resume) {
  problem = "";
  pending = [];
  busy(true);
  try {
    await agent.runAgent({ tools, resume });
    while (pending.length) {
      for (const id of pending) agent.addMessage({ id: crypto.randomUUID(), role: "tool", toolCallId: id, content: answer(id) });
      pending = [];
      await agent.runAgent({ tools });
    }
  } catch (error) {
    problem = `The server does not answer: ${error.message}. Reload the page; nothing is lost.`;
  }
  busy(false);
  showMessages();
  showQuestions();
}

function answer(id) {
  const call = agent.messages.flatMap((message) => message.toolCalls ?? []).find((each) => each.id === id);
  return run[call?.function.name]?.() ?? "this page has no such tool";
}

function busy(is) {
  for (const each of document.querySelectorAll("button, textarea, input")) each.disabled = is;
  const notes = agent.state?.toolloop?.notApplied ?? [];
  find("status").textContent = is ? "Working …" : [problem, ...notes.map((note) => note.why)].filter(Boolean).join("\n");
}

function element(name, text, attributes = {}) {
  const made = Object.assign(document.createElement(name), attributes);
  made.append(text);
  return made;
}

function showMessages() {
  const items = agent.messages.flatMap((message) => {
    const text = typeof message.content === "string" ? message.content : "";
    const shown = text ? [element("li", text, { className: message.role })] : [];
    const calls = (message.toolCalls ?? []).map(({ function: { name, arguments: given } }) =>
      element("li", `${name} ${given}`, { className: "call" }));
    return [...shown, ...calls];
  });
  find("messages").replaceChildren(...items);
}

// One card for each call that waits: the whole input first, then what can be said about it.
function showQuestions() {
  find("questions").replaceChildren(...agent.pendingInterrupts.map(card));
}

function card(interrupt) {
  const { input, names } = interrupt.metadata.toolloop;
  const fields = interrupt.responseSchema.properties;
  const made = element("article", element("h2", interrupt.message));
  const given = JSON.stringify(input, null, 2);
  const edited = element("textarea", given, { id: `input-${interrupt.id}`, readOnly: !fields.editedArgs });
  const reason = element("input", "", { id: `reason-${interrupt.id}` });
  made.append(element("label", `The input of ${names.at(-1)}`, { htmlFor: edited.id }), edited);
  made.append(element("label", "A reason (the model reads it)", { htmlFor: reason.id }), reason);
  const button = (text, payload, className = "") => {
    const pressed = element("button", text, { type: "button", className });
    pressed.addEventListener("click", () => decide(interrupt, payload, reason.value));
    made.append(pressed);
  };
  const changed = () => (edited.value === given ? {} : { editedArgs: JSON.parse(edited.value) });
  if (fields.approved?.enum.includes(true)) button("Approve", () => ({ approved: true, ...changed() }), "primary");
  if (fields.approved?.enum.includes(false)) button("Deny", () => ({ approved: false }));
  if (fields.rerun) button("Run again", () => ({ rerun: true }), "primary");
  if (fields.answer) button("It ended as in the reason", () => ({ answer: reason.value || "done" }));
  return made;
}

const decided = new Map();

// A client answers all its interrupts in one run.
function decide(interrupt, payload, reason) {
  try {
    decided.set(interrupt.id, { ...payload(), ...(reason ? { reason } : {}) });
  } catch {
    find("status").textContent = "The input is not valid JSON.";
    return;
  }
  const open = agent.pendingInterrupts.filter((each) => !decided.has(each.id));
  if (open.length) {
    find(`input-${interrupt.id}`).parentElement.replaceChildren(`Decided. ${open.length} more to decide.`);
    return;
  }
  const resume = agent.pendingInterrupts.map(({ id }) => ({ interruptId: id, status: "resolved", payload: decided.get(id) }));
  decided.clear();
  go(resume);
}

find("say").addEventListener("submit", (event) => {
  event.preventDefault();
  agent.addMessage({ id: crypto.randomUUID(), role: "user", content: find("text").value });
  find("say").reset();
  // A client may only speak if it answers what waits. With a new message, "cancelled" decides nothing.
  const waiting = agent.pendingInterrupts.map(({ id }) => ({ interruptId: id, status: "cancelled" }));
  go(waiting.length ? waiting : undefined);
});

go();
